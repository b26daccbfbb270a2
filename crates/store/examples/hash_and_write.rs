//! What it costs to make results durable, and nothing else: each is hashed and appended to one file, which is synced for every
//! 512 of them. What a whole dispatcher stores in a second is compared with this.
#![expect(clippy::print_stdout, reason = "a program for a terminal")]

use sha2::{Digest, Sha256};
use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::time::Instant;

const USAGE: &str = "usage: hash_and_write FILE BYTES TASKS, such as: hash_and_write /tmp/pack 8192 10000";
/// Results that share a sync.
const BATCH: usize = 512;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, bytes, tasks] = arguments.as_slice() else { return Err(USAGE.into()) };
    let (body, tasks): (Vec<u8>, u32) = (vec![b'x'; bytes.parse()?], tasks.parse()?);
    let mut out = File::create(file)?;
    let began = Instant::now();
    let mut sums = 0_u64;
    let mut left = usize::try_from(tasks)?;
    while left > 0 {
        let batch = left.min(BATCH);
        for _ in 0..batch {
            sums = sums.wrapping_add(Sha256::digest(&body).first().copied().unwrap_or_default().into());
            out.write_all(&body)?;
        }
        out.sync_data()?;
        left -= batch;
    }
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{tasks} results of {} bytes (sum {sums}) in {seconds:.2} s: {:.0} tasks/s",
        body.len(),
        f64::from(tasks) / seconds
    );
    Ok(())
}
