//! Threads that own the connections.
//!
//! Owns the way from a caller to a connection: each piece of work travels to a thread and runs there to its end,
//! transaction included, whether its caller still waits or not. So a call that is dropped half-way leaves no open
//! transaction (rule D3's repeats then find what was committed).

use super::error::{fault, lane_gone};
use crate::model::{ErrorClass, StoreError};
use futures_util::future::BoxFuture;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};
use std::sync::Arc;
use tokio::sync::{Mutex, mpsc, oneshot};

/// How many calls may queue for a lane before their callers wait.
const QUEUE: usize = 64;

/// What a call does with the connection.
type Job = Box<dyn for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, ()> + Send>;

/// One or more threads, each with its own connection, that take work from one queue.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    jobs: mpsc::Sender<Job>,
}

/// How a piece of work runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// As a transaction that takes the write lock at its start, so that it cannot lose it half-way.
    Write,
    /// As a transaction that sees one state of the database.
    Read,
}

impl Mode {
    const fn begin(self) -> &'static str {
        match self {
            Self::Write => "BEGIN IMMEDIATE",
            Self::Read => "BEGIN DEFERRED",
        }
    }
}

impl Lane {
    /// Starts `threads` threads. `prepare` runs on each connection before it takes work; an error of it ends the start.
    pub(super) async fn start<P>(
        name: &'static str,
        threads: usize,
        options: SqliteConnectOptions,
        prepare: P,
    ) -> Result<Self, StoreError>
    where
        P: for<'c> Fn(&'c mut SqliteConnection) -> BoxFuture<'c, Result<(), StoreError>> + Clone + Send + 'static,
    {
        let (jobs, queue) = mpsc::channel(QUEUE);
        let queue = Arc::new(Mutex::new(queue));
        for _ in 0..threads.max(1) {
            let (ready, started) = oneshot::channel();
            let (queue, options, prepare) = (Arc::clone(&queue), options.clone(), prepare.clone());
            std::thread::Builder::new()
                .name(name.to_owned())
                .spawn(move || run_thread(&queue, &options, prepare, ready))
                .map_err(|e| cannot_start(&e))?;
            started.await.map_err(|_| lane_gone("opening the database"))??;
        }
        Ok(Self { jobs })
    }

    /// Runs `work` in one transaction and gives its answer. Committed only where `work` succeeds.
    pub(super) async fn call<T, W>(&self, mode: Mode, doing: &'static str, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, StoreError>> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |connection| {
            Box::pin(async move {
                // Where the caller is gone, nobody is there to hear the answer; what was committed stays.
                drop(answer.send(in_transaction(connection, mode, doing, work).await));
            })
        });
        self.jobs.send(job).await.map_err(|_| lane_gone(doing))?;
        answered.await.map_err(|_| lane_gone(doing))?
    }
}

async fn in_transaction<T, W>(
    connection: &mut SqliteConnection,
    mode: Mode,
    doing: &'static str,
    work: W,
) -> Result<T, StoreError>
where
    W: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, StoreError>>,
{
    let failed = |e: sqlx::Error| fault(doing, &e);
    let mut transaction = connection.begin_with(mode.begin()).await.map_err(failed)?;
    match work(&mut transaction).await {
        Ok(value) => transaction.commit().await.map(|()| value).map_err(failed),
        Err(error) => {
            // The first error is the one that says what is wrong; SQLite may have rolled back by itself already.
            drop(transaction.rollback().await);
            Err(error)
        }
    }
}

fn run_thread<P>(
    queue: &Mutex<mpsc::Receiver<Job>>,
    options: &SqliteConnectOptions,
    prepare: P,
    ready: oneshot::Sender<Result<(), StoreError>>,
) where
    P: for<'c> Fn(&'c mut SqliteConnection) -> BoxFuture<'c, Result<(), StoreError>>,
{
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_time().build() {
        Ok(runtime) => runtime,
        Err(e) => return drop(ready.send(Err(cannot_start(&e)))),
    };
    runtime.block_on(async {
        let opened = async {
            let mut connection = options.connect().await.map_err(|e| fault("opening the database", &e))?;
            prepare(&mut connection).await?;
            Ok(connection)
        };
        let mut connection = match opened.await {
            Ok(connection) => connection,
            Err(e) => return drop(ready.send(Err(e))),
        };
        if ready.send(Ok(())).is_ok() {
            serve(queue, &mut connection).await;
        }
        drop(connection.close().await);
    });
}

/// Takes work until no caller can come any more.
async fn serve(queue: &Mutex<mpsc::Receiver<Job>>, connection: &mut SqliteConnection) {
    loop {
        let job = queue.lock().await.recv().await;
        match job {
            Some(job) => job(connection).await,
            None => return,
        }
    }
}

fn cannot_start(error: &std::io::Error) -> StoreError {
    StoreError { class: ErrorClass::Misconfigured, doing: "starting the database's threads", why: error.to_string() }
}
