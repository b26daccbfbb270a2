//! Threads that own the connections.
//!
//! Owns the way from a caller to a connection: each piece of work travels to a thread and runs there to its end,
//! transaction included, once it has begun, whether its caller still waits or not. So a call that is dropped half-way leaves no open
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

/// What a call does with the connection, or with the reason why there is none. Tells what the connection is good for.
type Job = Box<dyn for<'c> FnOnce(Result<&'c mut SqliteConnection, StoreError>) -> BoxFuture<'c, Left> + Send>;

/// How a piece of work leaves its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    /// Without a transaction.
    Clean,
    /// In a transaction that did not end, or that the driver believes in after SQLite ended it by itself, as it does on a
    /// full disk. Such a connection begins no other; it is replaced.
    InDoubt,
}

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
                if answer.is_closed() {
                    // Nobody waits for it any more, and nothing was begun: it is as if it had never been asked.
                    return Left::Clean;
                }
                let (done, left) = match connection {
                    Ok(connection) => in_transaction(connection, mode, doing, work).await,
                    Err(error) => (Err(error), Left::Clean),
                };
                // Where the caller goes now, nobody is there to hear the answer; what was committed stays.
                drop(answer.send(done));
                left
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
) -> (Result<T, StoreError>, Left)
where
    W: for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, StoreError>>,
{
    let failed = |e: sqlx::Error| fault(doing, &e);
    let mut transaction = match connection.begin_with(mode.begin()).await {
        Ok(transaction) => transaction,
        // A busy database refuses a begin and nothing is open then; what else it may be, a new connection tells.
        Err(e) => return (Err(failed(e)), Left::InDoubt),
    };
    match work(&mut transaction).await {
        Ok(value) => match transaction.commit().await {
            Ok(()) => (Ok(value), Left::Clean),
            Err(e) => (Err(failed(e)), Left::InDoubt),
        },
        Err(error) => {
            // The first error is the one that says what is wrong.
            let left = if transaction.rollback().await.is_ok() { Left::Clean } else { Left::InDoubt };
            (Err(error), left)
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
        let connection = match open(options, &prepare).await {
            Ok(connection) => connection,
            Err(e) => return drop(ready.send(Err(e))),
        };
        if ready.send(Ok(())).is_ok() {
            serve(queue, options, &prepare, connection).await;
        }
    });
}

/// A connection that is ready for work.
async fn open<P>(options: &SqliteConnectOptions, prepare: &P) -> Result<SqliteConnection, StoreError>
where
    P: for<'c> Fn(&'c mut SqliteConnection) -> BoxFuture<'c, Result<(), StoreError>>,
{
    let mut connection = options.connect().await.map_err(|e| fault("opening the database", &e))?;
    prepare(&mut connection).await?;
    Ok(connection)
}

/// Takes work until no caller can come any more. A connection in doubt is replaced before the next piece.
async fn serve<P>(
    queue: &Mutex<mpsc::Receiver<Job>>,
    options: &SqliteConnectOptions,
    prepare: &P,
    connection: SqliteConnection,
) where
    P: for<'c> Fn(&'c mut SqliteConnection) -> BoxFuture<'c, Result<(), StoreError>>,
{
    let mut kept = Some(connection);
    loop {
        let Some(job) = queue.lock().await.recv().await else { break };
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => match open(options, prepare).await {
                Ok(connection) => connection,
                Err(e) => {
                    job(Err(e)).await;
                    continue;
                }
            },
        };
        if job(Ok(&mut connection)).await == Left::Clean {
            kept = Some(connection);
        }
    }
    if let Some(connection) = kept {
        drop(connection.close().await);
    }
}

fn cannot_start(error: &std::io::Error) -> StoreError {
    StoreError { class: ErrorClass::Misconfigured, doing: "starting the database's threads", why: error.to_string() }
}
