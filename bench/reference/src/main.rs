//! Runs the indexes of ai-dynamo/dynamo, as the crate dynamo-kv-router has them,
//! on a history that bench/corpus wrote, so that they can be set beside kvindex
//! on the same machine:
//!
//! ```sh
//! cargo build --release --manifest-path bench/reference/Cargo.toml --target-dir build/reference
//! go run ./bench/corpus -name B1 -sequence-keys -out b1.bin
//! build/reference/release/reference compressed b1.bin
//! ```
//!
//! `compressed` is the one that they serve with. Keys must be the same on every
//! worker: where each has its own, it finds a seventh less of what there is.
//!
//! One thread applies events, as their thread pool does it, and one asks. Events
//! are queued, and only a flush tells that they are applied; so the two take
//! turns of a few thousand operations and nobody waits within a turn. Events are
//! made before the clock runs. What counts is the processor time of each thread,
//! with all events applied. The answers are those of the beginning of a turn.

use std::{env, fs, process::exit, time::Instant};

use dynamo_kv_router::{
    indexer::{
        SyncIndexer, ThreadPoolIndexer, concurrent_radix_tree_compressed::ConcurrentRadixTreeCompressed,
        positional::PositionalIndexer,
    },
    protocols::{
        ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheRemoveData, KvCacheStoreData,
        KvCacheStoredBlockData, LocalBlockHash, RouterEvent,
    },
};

/// Operations of one turn.
const TURN: usize = 4096;

/// An operation of the history.
enum Op {
    Query(Vec<LocalBlockHash>),
    Event(RouterEvent),
}

struct History {
    file: Vec<u8>,
    ops: usize,
    locals: usize, // where they begin
    blocks: usize,
}

impl History {
    fn open(path: &str) -> History {
        let file = fs::read(path).expect("a history, as bench/corpus writes it");
        assert_eq!(&file[..8], b"KVHIST01");
        let mut h = History {
            file,
            ops: 0,
            locals: 0,
            blocks: 0,
        };
        h.ops = h.u64(16) as usize;
        h.locals = 40 + 32 * h.ops;
        h.blocks = h.locals + 8 * h.u64(24) as usize;
        h
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.file[at..at + 8].try_into().unwrap())
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.file[at..at + 4].try_into().unwrap())
    }

    /// Returns operation i and its number of blocks.
    fn op(&self, i: usize) -> (Op, usize) {
        let at = 40 + 32 * i;
        let (kind, worker, n) = (self.file[at], self.u32(at + 4) as u64 + 1, self.u32(at + 12) as usize);
        let first = self.u64(at + 16) as usize;
        if kind == 0 {
            let query = (0..n)
                .map(|j| LocalBlockHash(self.u64(self.locals + 8 * (first + j))))
                .collect();
            return (Op::Query(query), n);
        }
        let key = |j: usize| ExternalSequenceBlockHash(self.u64(self.blocks + 16 * (first + j)));
        let data = if kind == 3 {
            KvCacheEventData::Removed(KvCacheRemoveData {
                block_hashes: (0..n).map(key).collect(),
            })
        } else {
            KvCacheEventData::Stored(KvCacheStoreData {
                parent_hash: (kind == 2).then(|| ExternalSequenceBlockHash(self.u64(at + 24))),
                start_position: None,
                blocks: (0..n)
                    .map(|j| KvCacheStoredBlockData {
                        block_hash: key(j),
                        tokens_hash: LocalBlockHash(self.u64(self.blocks + 16 * (first + j) + 8)),
                        mm_extra_info: None,
                    })
                    .collect(),
            })
        };
        (
            Op::Event(RouterEvent::new(
                worker,
                KvCacheEvent {
                    event_id: i as u64,
                    data,
                    dp_rank: 0,
                },
            )),
            n,
        )
    }
}

/// Processor time in seconds, of this thread or of the process.
fn cpu(of: i32) -> f64 {
    let mut u: libc::rusage = unsafe { std::mem::zeroed() };
    assert_eq!(unsafe { libc::getrusage(of, &mut u) }, 0);
    let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    seconds(u.ru_utime) + seconds(u.ru_stime)
}

fn run<T: SyncIndexer>(name: &str, h: &History, backend: T) {
    let index = ThreadPoolIndexer::new(backend, 1, 128);
    let (mut blocks, mut found, mut reader, mut writer) = (0usize, 0u64, 0.0, 0.0);
    let mut latencies: Vec<u64> = Vec::new();
    let mut turns: Vec<(usize, f64)> = Vec::new();
    for begin in (0..h.ops).step_by(TURN) {
        let (mut queries, mut events, mut these) = (Vec::new(), Vec::new(), 0);
        for i in begin..(begin + TURN).min(h.ops) {
            let (op, n) = h.op(i);
            these += n;
            match op {
                Op::Query(q) => queries.push(q),
                Op::Event(e) => events.push(e),
            }
        }
        let asked = cpu(libc::RUSAGE_THREAD);
        for q in &queries {
            let start = Instant::now();
            let scores = index.backend().find_matches(q, false);
            latencies.push(start.elapsed().as_nanos() as u64);
            found += scores.scores.values().map(|&n| n as u64).sum::<u64>();
        }
        let read = cpu(libc::RUSAGE_THREAD) - asked;
        let (process, own) = (cpu(libc::RUSAGE_SELF), cpu(libc::RUSAGE_THREAD));
        for e in events {
            index.enqueue_event(e).expect("an event that is taken");
        }
        pollster::block_on(index.flush_and_wait()).expect("all events applied");
        let applied = (cpu(libc::RUSAGE_SELF) - process) - (cpu(libc::RUSAGE_THREAD) - own);
        blocks += these;
        reader += read;
        writer += applied;
        turns.push((these, read + applied));
    }
    latencies.sort_unstable();
    let us = |q: f64| latencies[((latencies.len() - 1) as f64 * q) as usize] as f64 / 1e3;
    let (n, t) = turns[turns.len() - turns.len() / 10..]
        .iter()
        .fold((0, 0.0), |(n, t), x| (n + x.0, t + x.1));
    println!(
        "{{\"index\":\"{name}\",\"blocks\":{blocks},\"writer\":{writer:.3},\"reader\":{reader:.3},\
         \"last_tenth\":{:.3},\"p50_us\":{:.3},\"p99_us\":{:.3},\"found\":{found}}}",
        n as f64 / t / 1e6,
        us(0.5),
        us(0.99),
    );
}

fn main() {
    let args: Vec<String> = env::args().collect();
    if args.len() != 3 {
        eprintln!("usage: reference compressed|positional history");
        exit(2);
    }
    let h = History::open(&args[2]);
    match args[1].as_str() {
        "compressed" => run("compressed", &h, ConcurrentRadixTreeCompressed::new()),
        "positional" => run("positional", &h, PositionalIndexer::new(8)),
        other => {
            eprintln!("index {other}: want compressed or positional");
            exit(2);
        }
    }
}
