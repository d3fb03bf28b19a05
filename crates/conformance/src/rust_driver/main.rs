//! The driver of the Rust library, for the conformance suite: JSON lines on standard input and output.
//!
//! - `requests`: what a request means to the library. `watches`: those about watches and observations.
//! - `errors`: the library's errors, in the suite's words. `misbehaviour`: how the driver breaks a rule.
//!
//! With the feature `planted` it can be told to misbehave.

mod errors;
mod misbehaviour;
mod requests;
mod watches;

use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::misbehaviour::Misbehaviour;
use crate::requests::Driver;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let misbehaviour = match arguments.as_slice() {
        [] => None,
        [option, mode] if option == "--misbehave" => match Misbehaviour::begin(mode) {
            Some(misbehaviour) => Some(misbehaviour),
            None => return ExitCode::FAILURE,
        },
        _ => return ExitCode::FAILURE,
    };
    // One thread, which the suite can block.
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let Ok(runtime) = runtime.worker_threads(1).enable_all().build() else {
        return ExitCode::FAILURE;
    };
    let (answers, mut to_write) = mpsc::unbounded_channel::<Value>();
    std::thread::spawn(move || {
        while let Some(answer) = to_write.blocking_recv() {
            let mut stdout = std::io::stdout().lock();
            if writeln!(stdout, "{answer}").and_then(|()| stdout.flush()).is_err() {
                return;
            }
        }
    });
    let driver = Arc::new(Driver::new(misbehaviour));
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        let Ok(request) = serde_json::from_str::<Value>(&line) else { continue };
        let id = request["id"].clone();
        let to_line = move |outcome: Result<Value, Value>| match outcome {
            Ok(value) => json!({"id": id, "ok": value}),
            Err(error) => json!({"id": id, "err": error}),
        };
        // What needs no waiting is answered before the next line is read.
        if let Some(outcome) = driver.answer_at_once(&request) {
            let _ = answers.send(to_line(outcome));
            continue;
        }
        let (driver, answers) = (Arc::clone(&driver), answers.clone());
        let cancelled = driver.cancellation_of(&request);
        runtime.spawn(async move {
            let outcome = tokio::select! {
                outcome = driver.answer(&request) => outcome,
                () = cancelled.notified() => Err(json!({"kind": "cancelled"})),
            };
            driver.forget_cancellation(&request);
            let _ = answers.send(to_line(outcome));
        });
    }
    ExitCode::SUCCESS
}
