//! Maps as the loader finds them in the object, and the helpers to use them.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::{bpf_map_delete_elem, bpf_map_lookup_elem, bpf_map_update_elem};

/// What the loader has to know of a map: the layout of aya's and libbpf's `bpf_map_def`, in section `maps`.
///
/// Not generic over key and value: see [`crate::packet::__sk_buff`].
#[repr(C)]
pub struct Map {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
    id: u32,
    pinning: u32,
}

/// Pinned by its name, and found again there.
const BY_NAME: u32 = 1;

impl Map {
    /// A map with keys of type `K` and values of type `V`.
    pub const fn new<K, V>(kind: u32, max_entries: u32, flags: u32) -> Self {
        let (key_size, value_size) = (size_of::<K>() as u32, size_of::<V>() as u32);
        Self { kind, key_size, value_size, max_entries, flags, id: 0, pinning: BY_NAME }
    }

    #[inline(always)]
    fn as_ptr(&self) -> *mut c_void {
        (&raw const *self).cast_mut().cast()
    }

    /// The value for `key`, in place.
    ///
    /// # Safety
    /// The map was made with these types.
    #[inline(always)]
    pub unsafe fn get<K, V>(&self, key: &K) -> Option<*mut V> {
        // SAFETY: the loader has put the map's address there; the key lives for the call.
        let value = unsafe { bpf_map_lookup_elem(self.as_ptr(), (&raw const *key).cast()) };
        if value.is_null() { None } else { Some(value.cast()) }
    }

    /// Creates or replaces an entry; whether there was a place for it.
    ///
    /// # Safety
    /// The map was made with these types.
    #[inline(always)]
    pub unsafe fn set<K, V>(&self, key: &K, value: &V) -> bool {
        let (key, value) = ((&raw const *key).cast(), (&raw const *value).cast());
        // SAFETY: as in `get`.
        unsafe { bpf_map_update_elem(self.as_ptr(), key, value, 0) == 0 }
    }

    /// Removes an entry; whether it was there.
    ///
    /// # Safety
    /// The map was made with keys of this type.
    #[inline(always)]
    pub unsafe fn remove<K>(&self, key: &K) -> bool {
        // SAFETY: as in `get`.
        unsafe { bpf_map_delete_elem(self.as_ptr(), (&raw const *key).cast()) == 0 }
    }
}
