//! Durations as people write them.

/// Milliseconds in `500ms`, `60s`, `5m` or `1h`.
pub(super) fn milliseconds(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::milliseconds;

    #[test]
    fn a_duration_is_a_number_and_a_unit() {
        assert_eq!(milliseconds("60s"), Some(60_000));
        assert_eq!(milliseconds("250ms"), Some(250));
        assert_eq!(milliseconds("2h"), Some(7_200_000));
        for wrong in ["", "60", "s", "-1s", "1d", "99999999999999999999s", "18446744073709551615h"] {
            assert_eq!(milliseconds(wrong), None, "{wrong}");
        }
    }
}
