//! Batches of results made durable: in packs, as files, and the ceiling of writing the same bytes to one file.

#![expect(clippy::expect_used, reason = "a benchmark stops where it cannot go on")]

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use dispatcher_core::id::{EntryName, Epoch, LeaseId, Run, TaskId};
use dispatcher_store::archive::{
    Archive, FileArchive, FileArchiveOptions, Layout, NewPart, PackArchive, PackOptions, Source,
};
use sha2::{Digest, Sha256};
use std::cell::Cell;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

const BATCH: usize = 512;
const SIZES: [usize; 2] = [8 * 1024, 64 * 1024];

/// Stages a batch and makes it durable.
fn write_batch(archive: &dyn Archive, next: &Cell<i64>, bytes: &[u8], sha256: &str) {
    for _ in 0..BATCH {
        let task = next.replace(next.get() + 1);
        let lease = LeaseId { task: TaskId(task), run: Run(1), epoch: Epoch(1) };
        let entry = EntryName(format!("html/papers/{:04}/paper-{task:08}.zip", task / 1_000).into_bytes());
        let part = NewPart { name: "result", sha256, source: Source::Bytes(bytes) };
        archive.stage(lease, &entry, part).expect("stages");
    }
    archive.sync().expect("syncs");
}

fn archives(c: &mut Criterion) {
    for size in SIZES {
        let bytes = vec![b'x'; size];
        let sha256: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        let folder = tempfile::tempdir().expect("a folder");
        let next = Cell::new(1);
        let mut group = c.benchmark_group(format!("archive/{}k", size / 1024));
        group.throughput(Throughput::Elements(BATCH as u64));
        group.sample_size(20).warm_up_time(Duration::from_millis(500)).measurement_time(Duration::from_secs(4));

        let packs = PackArchive::open(&folder.path().join("state"), PackOptions::default()).expect("opens");
        group.bench_function("packs", |b| b.iter(|| write_batch(&packs, &next, &bytes, &sha256)));
        drop(packs);
        clear(&folder.path().join("state"));

        let options = FileArchiveOptions {
            out: folder.path().join("out"),
            state: folder.path().join("out/state"),
            layout: Layout::same_names(),
        };
        let files = FileArchive::open(options).expect("opens");
        group.bench_function("files", |b| b.iter(|| write_batch(&files, &next, &bytes, &sha256)));
        clear(&folder.path().join("out"));

        let ceiling = folder.path().join("plain");
        let whole = vec![b'x'; size * BATCH];
        let file = File::create(&ceiling).expect("makes");
        let append = |mut file: &File| {
            file.write_all(&whole).expect("writes");
            file.sync_data().expect("syncs");
        };
        group.bench_function("plain append", |b| b.iter_batched(|| &file, append, BatchSize::PerIteration));
        group.finish();
    }
}

fn clear(folder: &Path) {
    // What stays is removed with the whole folder.
    drop(std::fs::remove_dir_all(folder));
}

criterion_group!(benches, archives);
criterion_main!(benches);
