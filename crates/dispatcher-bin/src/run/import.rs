//! The inputs of a `run`: the tree, and the check that no two of them have one result name.
//!
//! **Refuses to know** what an input is, and what becomes of a task.
//!
//! Memory is bounded by the largest single folder, not by the tree.

use crate::exit::Exit;
use crate::inputs::Folder;
use dispatcher_core::id::EntryName;
use dispatcher_worker::exec::ResultNaming;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The folder to import.
#[derive(Clone, Debug)]
pub struct Tree {
    /// The folder with the inputs.
    pub dir: PathBuf,
    /// The results folder, skipped where it lies inside.
    pub out: PathBuf,
    /// What results are called.
    pub naming: ResultNaming,
    /// Whether results are called otherwise than their inputs.
    pub renames: bool,
}

impl Tree {
    /// The inputs, by name.
    pub fn inputs(&self) -> Folder {
        Folder { dir: self.dir.clone(), skip: vec![self.out.clone()], beside: Vec::new(), by_name: true, priority: 0 }
    }

    /// Tells two inputs that would have one result, before anything runs. Without an extension each result has its
    /// input's own name, so there is nothing to check.
    ///
    /// # Errors
    /// Names the first two, how many more there are, and what to do.
    pub fn check_result_names(&self) -> anyhow::Result<()> {
        if !self.renames {
            return Ok(());
        }
        // The walk goes into a folder before it comes to what is named after it, so the names of each folder on the way
        // down are kept.
        let mut names: Vec<HashMap<OsString, OsString>> = Vec::new();
        let (mut first, mut more) = (None, 0_u64);
        for entry in self.inputs().walk().filter_map(Result::ok) {
            let kind = entry.file_type();
            let name = entry.file_name().to_owned();
            let result = if kind.is_file() {
                OsString::from_vec(self.naming.result_name(&EntryName(name.as_bytes().to_vec())).0)
            } else if kind.is_dir() {
                name.clone()
            } else {
                continue;
            };
            names.resize_with(entry.depth(), HashMap::new);
            let here = names.last_mut().and_then(|names| names.insert(result.clone(), name.clone()));
            match here {
                Some(other) if first.is_none() => {
                    let folder = entry.path().parent().unwrap_or(Path::new(""));
                    first = Some(two_inputs(folder, &other, &name, &result));
                }
                Some(_) => more += 1,
                None => {}
            }
        }
        let Some(first) = first else { return Ok(()) };
        let more = if more > 0 { format!(", and {more} more have that of another") } else { String::new() };
        Err(Exit::usage(format!(
            "{first}{more}: run without --ext, then each result has its input's own name; or move inputs apart"
        )))
    }
}

/// Two inputs with one result name.
fn two_inputs(folder: &Path, one: &OsStr, other: &OsStr, result: &OsStr) -> String {
    format!(
        "in {} the inputs {} and {} would both have the result {}",
        folder.display(),
        one.display(),
        other.display(),
        result.display()
    )
}
