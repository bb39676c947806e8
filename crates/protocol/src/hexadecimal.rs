//! Formatting bytes as text.

use std::fmt::Write;

/// Formats bytes as hexadecimal digits, two for each.
pub fn hexadecimal(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().fold(String::new(), |mut digits, byte| {
        // Writing to a string cannot fail.
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

#[cfg(test)]
mod tests {
    use super::hexadecimal;

    #[test]
    fn every_byte_has_two_digits() {
        assert_eq!(hexadecimal([0x00, 0x0f, 0xa0]), "000fa0");
        assert_eq!(hexadecimal([]), "");
    }
}
