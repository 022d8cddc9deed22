//! Token buckets: so many a second in the long run, a second's worth at once.

use aya_ebpf::helpers::generated::bpf_ktime_get_ns;
use bpf_common::maps::Bucket;

const SECOND: u64 = 1_000_000_000;

/// Nanoseconds since boot.
#[inline(always)]
pub fn now() -> u64 {
    // SAFETY: plain helper call.
    unsafe { bpf_ktime_get_ns() }
}

/// Takes a token from a bucket that gains `rate` a second; false if there is none.
///
/// Two CPUs at the same bucket may both take the last token: bounding a storm does not need better.
#[inline(always)]
pub fn take(bucket: *mut Bucket, rate: u32) -> bool {
    if rate == 0 {
        return false;
    }
    let now = now();
    let price = SECOND / u64::from(rate);
    // SAFETY: a value of a map, alive until the program ends.
    let bucket = unsafe { &mut *bucket };
    let mut tokens = SECOND;
    if bucket.refilled != 0 {
        tokens = tokens.min(bucket.tokens + now.saturating_sub(bucket.refilled));
    }
    if tokens < price {
        return false;
    }
    *bucket = Bucket { refilled: now, tokens: tokens - price };
    true
}
