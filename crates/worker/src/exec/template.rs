//! The command of a service, with places for what differs from task to task.
//!
//! Owns the grammar: words as a shell splits them, and `{input}` `{output}` `{stem}` `{ext}` `{task}` `{attempt}` in them.
//! Without a shell each word stays one argument whatever is filled in; with one ([`super::shell`]) values travel as
//! variables and are never read as program text. Anything else in braces that looks like a placeholder is an error;
//! `{{name}}` stands for the text `{name}`.

use super::shell;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What may be filled in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Placeholder {
    /// The path of a file with the input, whose name is the last piece of the entry's.
    Input,
    /// The path where the result is expected, already with its name.
    Output,
    /// The last piece of the entry's name without its extension.
    Stem,
    /// The extension of the entry's name, without the dot; empty where it has none.
    Ext,
    /// The task's id.
    Task,
    /// The attempt's number.
    Attempt,
}

/// A command that runs once per task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandTemplate {
    text: String,
    form: Form,
    uses: Vec<Placeholder>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Form {
    Words(Vec<Vec<Piece>>),
    /// A script for `sh -c`, which takes the values of `uses` as its arguments, in that order.
    Script(String),
}

/// Text, or a place for a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    Place(Placeholder),
}

/// Why a command cannot be used. Each says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// There is no command.
    #[error("the command is empty")]
    Empty,
    /// A quote is not closed.
    #[error("a quote in the command is not closed: {text}")]
    Quotes {
        /// The command.
        text: String,
    },
    /// Something in braces that is no placeholder.
    #[error(
        "`{{{name}}}` is no placeholder: there are {{input}}, {{output}}, {{stem}}, {{ext}}, {{task}} and {{attempt}}; for \
         the text itself write `{{{{{name}}}}}`"
    )]
    Unknown {
        /// What stands in the braces.
        name: String,
    },
    /// Empty braces, as other tools have them.
    #[error("`{{}}` is no placeholder: the input's path is {{input}}")]
    EmptyBraces,
}

/// Why a command's program cannot be started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no program `{program}`{searched}: install it, or write its path")]
pub struct ProgramMissing {
    program: String,
    searched: &'static str,
}

/// The values for one task.
#[derive(Debug, Default)]
pub(super) struct Values {
    pub(super) input: PathBuf,
    pub(super) output: PathBuf,
    pub(super) stem: OsString,
    pub(super) ext: OsString,
    pub(super) task: String,
    pub(super) attempt: String,
}

impl Placeholder {
    const ALL: [Self; 6] = [Self::Input, Self::Output, Self::Stem, Self::Ext, Self::Task, Self::Attempt];

    /// Its name, as it stands in braces.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
            Self::Stem => "stem",
            Self::Ext => "ext",
            Self::Task => "task",
            Self::Attempt => "attempt",
        }
    }
}

impl CommandTemplate {
    /// Reads a command. With `shell` it is a script for `sh -c`; without, it is split into words as a shell would, and
    /// nothing else of a shell's grammar means anything.
    ///
    /// ```
    /// use dispatcher_worker::exec::{CommandTemplate, Placeholder};
    ///
    /// let command = CommandTemplate::parse("pandoc {input} -o {output}", false)?;
    /// assert!(command.uses(Placeholder::Output));
    /// assert!(CommandTemplate::parse("pandoc {file}", false).is_err());
    /// # Ok::<(), dispatcher_worker::exec::TemplateError>(())
    /// ```
    ///
    /// # Errors
    /// [`TemplateError`].
    pub fn parse(text: &str, shell: bool) -> Result<Self, TemplateError> {
        if text.trim().is_empty() {
            return Err(TemplateError::Empty);
        }
        let mut uses = Vec::new();
        let form = if shell {
            Form::Script(shell::script(text, &mut uses)?)
        } else {
            let words = shell_words::split(text).map_err(|_| TemplateError::Quotes { text: text.to_owned() })?;
            Form::Words(words.iter().map(|word| pieces(word, &mut uses)).collect::<Result<_, _>>()?)
        };
        Ok(Self { text: text.to_owned(), form, uses })
    }

    /// Whether a value is filled in somewhere.
    #[must_use]
    pub fn uses(&self, placeholder: Placeholder) -> bool {
        self.uses.contains(&placeholder)
    }

    /// Looks for the program, so that a missing one is told before anything runs. `None` where its name depends on the
    /// task.
    ///
    /// # Errors
    /// [`ProgramMissing`].
    pub fn find_program(&self) -> Result<Option<PathBuf>, ProgramMissing> {
        self.program().map(|name| find_program(OsStr::new(name))).transpose()
    }

    /// The program's name, where it does not depend on the task.
    pub(super) fn program(&self) -> Option<&str> {
        match &self.form {
            Form::Script(_) => Some("sh"),
            Form::Words(words) => match words.first().map(Vec::as_slice) {
                Some([Piece::Text(name)]) => Some(name),
                _ => None,
            },
        }
    }

    /// The command with `values` filled in. `found` is where its program is, if it was looked for.
    pub(super) fn command(&self, values: &Values, found: Option<&Path>) -> Command {
        let (name, arguments): (OsString, Vec<OsString>) = match &self.form {
            Form::Script(script) => {
                let filled = self.uses.iter().map(|place| values.get(*place).to_owned());
                ("sh".into(), ["-c".into(), script.into(), "sh".into()].into_iter().chain(filled).collect())
            }
            Form::Words(words) => {
                let mut words = words.iter().map(|word| fill(word, values));
                (words.next().unwrap_or_default(), words.collect())
            }
        };
        let mut command = Command::new(found.map_or(name.as_os_str(), Path::as_os_str));
        command.arg0(&name).args(arguments);
        command
    }
}

impl fmt::Display for CommandTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Values {
    fn get(&self, placeholder: Placeholder) -> &OsStr {
        match placeholder {
            Placeholder::Input => self.input.as_os_str(),
            Placeholder::Output => self.output.as_os_str(),
            Placeholder::Stem => &self.stem,
            Placeholder::Ext => &self.ext,
            Placeholder::Task => OsStr::new(&self.task),
            Placeholder::Attempt => OsStr::new(&self.attempt),
        }
    }
}

fn fill(word: &[Piece], values: &Values) -> OsString {
    let mut filled = OsString::new();
    for piece in word {
        match piece {
            Piece::Text(text) => filled.push(text),
            Piece::Place(placeholder) => filled.push(values.get(*placeholder)),
        }
    }
    filled
}

/// What stands at the beginning of `rest`, which begins with a brace: how many bytes of it are taken, and what they mean.
/// `None`: an ordinary brace.
pub(super) fn braces(rest: &str) -> Option<(usize, Result<Piece, TemplateError>)> {
    let double = rest.starts_with("{{");
    let inner = rest.get(if double { 2 } else { 1 }..)?;
    let length = inner.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(inner.len());
    let (name, after) = inner.split_at_checked(length)?;
    if double {
        // Only around a word: `}}` of other languages is left alone.
        let escaped = !name.is_empty() && after.starts_with("}}");
        return escaped.then(|| (length + 4, Ok(Piece::Text(format!("{{{name}}}")))));
    }
    if !after.starts_with('}') {
        return None;
    }
    let piece = match Placeholder::ALL.into_iter().find(|placeholder| placeholder.name() == name) {
        Some(placeholder) => Ok(Piece::Place(placeholder)),
        None if name.is_empty() => Err(TemplateError::EmptyBraces),
        None => Err(TemplateError::Unknown { name: name.to_owned() }),
    };
    Some((length + 2, piece))
}

/// Notes that a value is filled in.
pub(super) fn note(placeholder: Placeholder, uses: &mut Vec<Placeholder>) {
    if !uses.contains(&placeholder) {
        uses.push(placeholder);
    }
}

fn pieces(word: &str, uses: &mut Vec<Placeholder>) -> Result<Vec<Piece>, TemplateError> {
    let (mut pieces, mut text) = (Vec::new(), String::new());
    let mut rest = word;
    while let Some(c) = rest.chars().next() {
        let taken = match if c == '{' { braces(rest) } else { None } {
            Some((taken, piece)) => {
                match piece? {
                    Piece::Text(escaped) => text.push_str(&escaped),
                    Piece::Place(placeholder) => {
                        note(placeholder, uses);
                        if !text.is_empty() {
                            pieces.push(Piece::Text(std::mem::take(&mut text)));
                        }
                        pieces.push(Piece::Place(placeholder));
                    }
                }
                taken
            }
            // In `{{input}` the first brace is text, and the second one is looked at by itself.
            None => {
                text.push(c);
                c.len_utf8()
            }
        };
        rest = rest.get(taken..).unwrap_or_default();
    }
    if !text.is_empty() || pieces.is_empty() {
        pieces.push(Piece::Text(text));
    }
    Ok(pieces)
}

/// The program as the system would find it: as a path where its name has a slash, else in the folders of `PATH`.
fn find_program(name: &OsStr) -> Result<PathBuf, ProgramMissing> {
    let runs = |path: &PathBuf| path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok();
    let is_path = name.as_bytes().contains(&b'/');
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = if is_path {
        std::path::absolute(name).ok().filter(runs)
    } else {
        std::env::split_paths(&path).map(|folder| folder.join(name)).find(runs)
    };
    found.ok_or_else(|| ProgramMissing {
        program: name.to_string_lossy().into_owned(),
        searched: if is_path { "" } else { " in the folders of PATH" },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> Values {
        Values {
            input: "/s/in/a b".into(),
            output: "/s/out/a b.html".into(),
            stem: "a b".into(),
            ext: "tex".into(),
            task: "7".to_owned(),
            attempt: "2".to_owned(),
        }
    }

    fn words(text: &str) -> Vec<String> {
        let command = CommandTemplate::parse(text, false).unwrap().command(&values(), None);
        let arguments = command.get_args().map(|a| a.to_str().unwrap().to_owned());
        std::iter::once(command.get_program().to_str().unwrap().to_owned()).chain(arguments).collect()
    }

    #[test]
    fn words_are_split_first_so_that_a_value_stays_one_argument() {
        assert_eq!(words("pandoc {input} -o {output}"), ["pandoc", "/s/in/a b", "-o", "/s/out/a b.html"]);
        assert_eq!(words("x '{stem}.{ext}' --id={task}.{attempt}"), ["x", "a b.tex", "--id=7.2"]);
        assert_eq!(words(r#"x "" 'a "b"' c\ d"#), ["x", "", "a \"b\"", "c d"]);
    }

    #[test]
    fn braces_of_other_languages_are_left_alone() {
        assert_eq!(words("awk '{print $1; if (a) {b++}}' {input}"), ["awk", "{print $1; if (a) {b++}}", "/s/in/a b"]);
        assert_eq!(
            words("x '{\"a\":1}' {A} {a,b} {{input}} {{ {"),
            ["x", "{\"a\":1}", "{A}", "{a,b}", "{input}", "{{", "{"]
        );
    }

    #[test]
    fn what_cannot_be_used_is_told_with_what_to_write_instead() {
        let refused = |text| CommandTemplate::parse(text, false).unwrap_err().to_string();
        assert!(refused("x {file}").starts_with("`{file}` is no placeholder: there are {input}, {output}"));
        assert!(refused("x {file}").ends_with("write `{{file}}`"));
        assert!(refused("x {}").contains("the input's path is {input}"));
        assert!(refused("x 'a").contains("not closed"));
        assert_eq!(CommandTemplate::parse("  ", true), Err(TemplateError::Empty));
    }

    #[test]
    fn a_missing_program_is_told_before_anything_runs() {
        let find = |text| CommandTemplate::parse(text, false).unwrap().find_program();
        assert!(find("sh -c true").unwrap().unwrap().ends_with("sh"));
        assert_eq!(find("{input} x").unwrap(), None);
        let missing = find("no-such-program-anywhere {input}").unwrap_err().to_string();
        assert!(
            missing.contains("no program `no-such-program-anywhere` in the folders of PATH: install it"),
            "{missing}"
        );
        assert!(find("./no/such/program").unwrap_err().to_string().contains("`./no/such/program`: install"));
    }
}
