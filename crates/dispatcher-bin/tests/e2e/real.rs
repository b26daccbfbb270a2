//! Files that nobody wrote for a test: of every kind and name.

use std::path::{Path, PathBuf};

/// Where a machine has many.
const ROOTS: [&str; 4] = ["/usr/share", "/usr/lib", "/usr/include", "/etc"];
/// The largest that is taken, in bytes: what is done with them is to take a command's start, and not its work.
const LARGEST: u64 = 50_000;

/// Copies `most` files of this machine below `into`, from all over its folders; where it has fewer, made ones fill up.
pub fn real_files(into: &Path, most: usize) -> Vec<PathBuf> {
    let found: Vec<PathBuf> = ROOTS.iter().flat_map(|root| files_below(root)).collect();
    let step = (found.len() / most).max(1);
    let mut copied = Vec::new();
    for path in found.iter().step_by(step) {
        let name = path.strip_prefix("/").unwrap().to_owned();
        let to = into.join(&name);
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        // What only root may read is left out.
        if copied.len() < most && std::fs::copy(path, to).is_ok() {
            copied.push(name);
        }
    }
    println!("{} of {most} files are real", copied.len());
    std::fs::create_dir_all(into.join("made")).unwrap();
    while copied.len() < most {
        let (n, name) = (copied.len(), PathBuf::from(format!("made/{:05}", copied.len())));
        std::fs::write(into.join(&name), format!("made {n}\n").repeat(n % 400)).unwrap();
        copied.push(name);
    }
    copied
}

fn files_below(root: &str) -> impl Iterator<Item = PathBuf> {
    let entries = walkdir::WalkDir::new(root).sort_by_file_name().into_iter().filter_map(Result::ok);
    entries
        .filter(|entry| entry.metadata().is_ok_and(|meta| meta.is_file() && meta.len() <= LARGEST))
        .map(|e| e.into_path())
}
