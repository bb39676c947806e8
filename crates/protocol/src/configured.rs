//! Values in configuration files, for `#[serde(deserialize_with)]`: a missing number is written as 0, a missing text as
//! empty, and a choice by its name.

use std::str::FromStr;
use std::time::Duration;

use serde::de::Error;
use serde::{Deserialize, Deserializer};

/// Reads the name of a choice.
///
/// # Errors
/// When the choice does not exist.
pub fn named<'de, D: Deserializer<'de>, T: FromStr<Err = String>>(deserializer: D) -> Result<T, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

/// Reads a text; an empty one means `None`.
///
/// # Errors
/// When it is not a text.
pub fn text_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Some(String::deserialize(deserializer)?).filter(|text| !text.is_empty()))
}

/// Reads a number that is not negative.
///
/// # Errors
/// When it is negative.
pub fn not_negative<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    let value = i64::deserialize(deserializer)?;
    usize::try_from(value).map_err(|_| D::Error::custom(format!("{value} is negative, expected 0 or more")))
}

/// Reads a number; 0 means `None`.
///
/// # Errors
/// When it is negative.
pub fn positive_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<usize>, D::Error> {
    not_negative(deserializer).map(|value| (value > 0).then_some(value))
}

/// Reads a number of seconds; 0 means `None`.
///
/// # Errors
/// When it is negative, infinite or not a number.
pub fn seconds_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let seconds = f64::deserialize(deserializer)?;
    let duration = Duration::try_from_secs_f64(seconds);
    let duration = duration.map_err(|_| D::Error::custom(format!("{seconds} is not a number of seconds")))?;
    Ok((!duration.is_zero()).then_some(duration))
}

/// Reads a number of bytes with its unit, such as `8GiB`; an empty text means `None`.
///
/// # Errors
/// When the text is not a size.
pub fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(deserializer)?;
    match text.trim() {
        "" => Ok(None),
        text => n_bytes(text).map(Some).ok_or_else(|| {
            D::Error::custom(format!("{text:?} is not a size: write a number and its unit, such as 8GiB or 500MB"))
        }),
    }
}

fn n_bytes(text: &str) -> Option<u64> {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let unit: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1000,
        "kib" | "k" => 1 << 10,
        "mb" => 1_000_000,
        "mib" | "m" => 1 << 20,
        "gb" => 1_000_000_000,
        "gib" | "g" => 1 << 30,
        "tb" => 1_000_000_000_000,
        "tib" | "t" => 1 << 40,
        _ => return None,
    };
    let n_bytes = number.trim().parse::<f64>().ok()? * unit as f64;
    (n_bytes >= 1.0 && n_bytes < u64::MAX as f64).then_some(n_bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        let check = |text, expected| assert_eq!(n_bytes(text), expected, "{text}");
        check("8GiB", Some(8 << 30));
        check("1.5 GB", Some(1_500_000_000));
        check("500m", Some(500 << 20));
        check("4096", Some(4096));
        check("0", None);
        check("-1GiB", None);
        check("GiB", None);
        check("8 parsecs", None);
        check("1e30", None);
    }
}
