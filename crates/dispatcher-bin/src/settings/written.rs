//! Spans of time and sizes, as people write them.
//!
//! Owns that what is shown of a size is what was set, to the byte.

/// A size in the unit that says it shortest and loses nothing: 1MB is no 1MiB.
pub fn exact_size(bytes: u64) -> String {
    let of = |base: u64, units: [&'static str; 4]| {
        let whole = |power: &u32| base.checked_pow(*power).is_some_and(|unit| bytes.is_multiple_of(unit));
        let power = if bytes == 0 { 0 } else { (0..=4).rev().find(whole).unwrap_or(0) };
        let unit = power.checked_sub(1).and_then(|i| units.get(i as usize)).copied().unwrap_or("B");
        format!("{}{unit}", bytes / base.pow(power))
    };
    let decimal = of(1000, ["KB", "MB", "GB", "TB"]);
    let binary = of(1024, ["KiB", "MiB", "GiB", "TiB"]);
    let digits = |text: &str| text.bytes().filter(u8::is_ascii_digit).count();
    if digits(&binary) < digits(&decimal) { binary } else { decimal }
}

/// Spans of time in the file.
pub(super) mod span {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use std::time::Duration;

    pub(in super::super) fn serialize<S: Serializer>(span: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&humantime::format_duration(*span))
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let text = String::deserialize(from)?;
        humantime::parse_duration(&text).map_err(|e| D::Error::custom(format!("{e} (write it like 90s, 10m, 2h)")))
    }
}

/// The same, where there may be none.
pub(super) mod maybe_span {
    use serde::{Deserializer, Serializer};
    use std::time::Duration;

    pub(in super::super) fn serialize<S: Serializer>(span: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        match span {
            Some(span) => super::span::serialize(span, to),
            None => to.serialize_none(),
        }
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        super::span::deserialize(from).map(Some)
    }
}

/// Sizes in the file are read as bytesize reads them, and shown exactly.
pub(super) mod size {
    use bytesize::ByteSize;
    use serde::Serializer;

    pub(in super::super) fn serialize<S: Serializer>(size: &ByteSize, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&super::exact_size(size.as_u64()))
    }
}

/// The same, where there may be none.
pub(super) mod maybe_size {
    use bytesize::ByteSize;
    use serde::Serializer;

    pub(in super::super) fn serialize<S: Serializer>(size: &Option<ByteSize>, to: S) -> Result<S::Ok, S::Error> {
        match size {
            Some(size) => super::size::serialize(size, to),
            None => to.serialize_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::exact_size;
    use bytesize::ByteSize;

    #[test]
    fn a_size_is_shown_as_it_was_set_and_reads_back_to_the_byte() {
        for text in ["0B", "1B", "1KB", "1MB", "1MiB", "4GB", "1GiB", "40MiB", "1500MB", "5TB", "1000001B", "1023MiB"] {
            let bytes = text.parse::<ByteSize>().unwrap().as_u64();
            assert_eq!(exact_size(bytes), text);
        }
        for bytes in [u64::MAX, u64::MAX - 1, 1 << 60, 999, 1024, 1025] {
            assert_eq!(exact_size(bytes).parse::<ByteSize>().unwrap().as_u64(), bytes, "{}", exact_size(bytes));
        }
    }
}
