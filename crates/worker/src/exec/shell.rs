//! Placeholders in a shell script.
//!
//! A value is never put into the text of a script: file names come from outside, and one named `$(reboot)` must stay a
//! name. Instead the script's first words take the values from its arguments into variables, and each placeholder becomes
//! a reference to one, quoted so that it stays one word: that depends on the quotes around the placeholder, which is all
//! that is understood of the shell's grammar here. Where that guess is wrong (in a here-document, say) a value may be split
//! or carry a quote too many, but it is still a value and no program text.

use super::template::{Piece, Placeholder, TemplateError, braces, note};
use std::fmt::Write;

/// The script for `sh -c` that does what `text` says. Its arguments are the values of `uses`, in that order.
pub(super) fn script(text: &str, uses: &mut Vec<Placeholder>) -> Result<String, TemplateError> {
    let (mut script, mut quotes) = (String::new(), Quotes::default());
    let (mut rest, mut before) = (text, None);
    while let Some(c) = rest.chars().next() {
        // `${name}` and `{}` are the shell's, or of other programs called from it.
        let found = if c == '{' && before != Some('$') { braces(rest) } else { None };
        let taken = match found {
            Some((taken, Ok(Piece::Text(escaped)))) => {
                script.push_str(&escaped);
                taken
            }
            Some((taken, Ok(Piece::Place(placeholder)))) => {
                note(placeholder, uses);
                script.push_str(&quotes.reference(placeholder));
                taken
            }
            Some((_, Err(unknown @ TemplateError::Unknown { .. }))) => return Err(unknown),
            Some(_) | None => {
                quotes.pass(c);
                script.push(c);
                c.len_utf8()
            }
        };
        before = Some(c);
        rest = rest.get(taken..).unwrap_or_default();
    }
    Ok(format!("{}{script}", prologue(uses)))
}

/// Takes the values into variables and leaves the script no arguments. It is on the script's first line, so that the
/// shell's line numbers are those of the text.
fn prologue(uses: &[Placeholder]) -> String {
    let mut prologue = String::new();
    for (n, placeholder) in uses.iter().enumerate() {
        let _ = write!(prologue, "dispatcher_{}=${}; ", placeholder.name(), n + 1);
    }
    if !uses.is_empty() {
        let _ = write!(prologue, "shift {}; ", uses.len());
    }
    prologue
}

/// Which quotes the place in a script stands in.
#[derive(Debug, Default)]
struct Quotes {
    /// What is open around it, outermost first.
    open: Vec<Open>,
    escaped: bool,
    comment: bool,
    before: Option<char>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    Single,
    Double,
    Parenthesis,
}

impl Quotes {
    /// One more character of the script.
    fn pass(&mut self, c: char) {
        let before = self.before.replace(c);
        if std::mem::take(&mut self.escaped) {
            return;
        }
        if self.comment {
            self.comment = c != '\n';
            return;
        }
        match (self.open.last(), c) {
            (Some(Open::Single), '\'') | (Some(Open::Double), '"') | (Some(Open::Parenthesis), ')') => {
                self.open.pop();
            }
            (Some(Open::Single), _) => {}
            (_, '\\') => self.escaped = true,
            (Some(Open::Double), '(') if before == Some('$') => self.open.push(Open::Parenthesis),
            (Some(Open::Double), _) => {}
            (_, '\'') => self.open.push(Open::Single),
            (_, '"') => self.open.push(Open::Double),
            (_, '(') => self.open.push(Open::Parenthesis),
            (_, '#') if before.is_none_or(|b| b.is_whitespace() || b == ';') => self.comment = true,
            _ => {}
        }
    }

    /// The text that stands for a value at this place.
    fn reference(&mut self, placeholder: Placeholder) -> String {
        self.before = Some('}');
        let variable = format!("${{dispatcher_{}}}", placeholder.name());
        match self.open.last() {
            Some(Open::Double) => variable,
            Some(Open::Single) => format!("'\"{variable}\"'"),
            Some(Open::Parenthesis) | None => format!("\"{variable}\""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::template::{CommandTemplate, Values};

    /// What `sh` prints for a script in which `{stem}` is `value`.
    fn prints(text: &str, value: &str) -> String {
        let values = Values { stem: value.into(), ..Values::default() };
        let mut command = CommandTemplate::parse(text, true).unwrap().command(&values, None);
        let output = command.output().unwrap();
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn a_value_stays_one_word_in_any_quotes_and_is_never_run() {
        let evil = "a  b'\"; $(echo run) `echo run` * \\ \n#";
        for text in [
            "printf '[%s]' {stem}",
            "printf '[%s]' \"{stem}\"",
            "printf '[%s]' '{stem}'",
            "printf '[%s]' \"$(printf '%s' {stem}; printf .)\" | sed '$ s/\\.]$/]/'",
            "f() { printf '[%s]' {stem}; }; f other; # it's a {stem}",
            "set -- x y; printf '[%s]' {stem}",
            "(cd / && printf '[%s]' '{stem}')",
        ] {
            assert_eq!(prints(text, evil), format!("[{evil}]"), "{text}");
        }
        assert_eq!(prints("printf '<%s>' pre-{stem}.\"{stem}\"'{stem}'", "a b"), "<pre-a b.a ba b>");
    }

    #[test]
    fn the_shell_s_own_braces_are_left_alone() {
        assert_eq!(prints("x=1; echo ${x} {} {a,b} {{stem}} $#", "v").trim(), "1 {} {a,b} {stem} 0");
        assert_eq!(prints("echo $# {stem}", "v").trim(), "0 v");
        assert!(matches!(CommandTemplate::parse("cat {file}", true), Err(TemplateError::Unknown { .. })));
    }
}
