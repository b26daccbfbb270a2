//! When two outputs are the same: word for word, except what differs from run to run.
//!
//! **Owns** what may differ: spans of time, clock times, rates, scratch paths, and the runs of blanks that line them up;
//! `[..]` within a line, `...` or `…` as a line of its own. **Invariant**: both sides are treated alike.

use regex_lite::Regex;

/// True when `printed` is what `expected` describes.
pub(super) fn same(expected: &str, printed: &str) -> bool {
    let expected: Vec<String> = expected.trim_end().lines().map(normal).collect();
    let printed: Vec<String> = printed.trim_end().lines().map(normal).collect();
    lines_match(&expected, &printed)
}

/// Both sides one below the other, for a person.
pub(super) fn difference(expected: &str, printed: &str) -> String {
    let mut out = String::new();
    for (mark, text) in [('-', expected), ('+', printed)] {
        for line in text.trim_end().lines() {
            out.push_str(&format!("    {mark} {line}\n"));
        }
    }
    out.push_str("    (- the document, + the command)");
    out
}

fn lines_match(expected: &[String], printed: &[String]) -> bool {
    match expected.split_first() {
        None => printed.is_empty(),
        Some((first, rest)) if first == "..." || first == "…" => {
            (0..=printed.len()).any(|skip| lines_match(rest, &printed[skip..]))
        }
        Some((first, rest)) => {
            printed.split_first().is_some_and(|(line, more)| line_matches(first, line) && lines_match(rest, more))
        }
    }
}

fn line_matches(expected: &str, printed: &str) -> bool {
    let mut parts = expected.split("[..]");
    let Some(mut left) = parts.next().and_then(|start| printed.strip_prefix(start)) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return left.is_empty() };
    for part in middle {
        match left.find(part) {
            Some(at) => left = &left[at + part.len()..],
            None => return false,
        }
    }
    left.ends_with(last)
}

/// A line with all that differs from run to run put into one form.
fn normal(line: &str) -> String {
    const FORMS: [(&str, &str); 5] = [
        (r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.]+(Z|[+-][0-9:]+)?", "<when>"),
        (r"\b[0-9]{1,2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?\b", "<when>"),
        (r"/tmp/[A-Za-z0-9_./-]+", "<scratch>"),
        (r"\b[0-9][0-9,]*(\.[0-9]+)?( ?[A-Za-z]+)?/(s|min|h)\b", "<rate>"),
        (r"\b[0-9]+(\.[0-9]+)? ?(ns|µs|us|ms|s|min|m|h)\b( ?[0-9]+(\.[0-9]+)? ?(ms|s|min|m)\b)*", "<span>"),
    ];
    let mut line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    for (pattern, form) in FORMS {
        if let Ok(pattern) = Regex::new(pattern) {
            line = pattern.replace_all(&line, form).into_owned();
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_rates_and_alignment_do_not_count() {
        assert!(same("done 12 files   in 1.2 s (10 files/s)\n", "done 12 files in 940 ms (10 files/s)\n"));
        assert!(same("a  120/s\nb 3.4 MB/s\nc 1,200 tasks/s", "a    7/s\nb 1 kB/s\nc 31.5 tasks/s"));
        assert!(same("at 2024-01-01T10:00:00Z took 1m 3s", "at 2026-11-30 09:10:11 took 2 s"));
        assert!(same("in /tmp/tour-a/x", "in /tmp/tour-bcd/x/y"));
    }

    #[test]
    fn counts_words_and_missing_lines_count() {
        assert!(!same("12 files", "13 files"));
        assert!(!same("a\nb", "a"));
        assert!(!same("a", "a\nb"));
        assert!(!same("usable 12", "failed 12"));
    }

    #[test]
    fn wildcards_stand_for_a_piece_of_a_line_or_for_lines() {
        assert!(same("task [..] by [..] ok", "task 7 by w-1/2 ok"));
        assert!(!same("task [..] ok", "task 7 failed"));
        assert!(!same("a[..]b[..]b", "ab"));
        assert!(same("first\n...\nlast", "first\n1\n2\nlast\n"));
        assert!(same("first\n…\n", "first\n"));
        assert!(!same("first\n...\nlast", "first\n1\n"));
    }
}
