//! A store of several independent Redis: a lock is held by whom a majority of them says so.
//!
//! **For efficiency only.** It rests on timers: a process that pauses, a clock that jumps, or a server that comes back
//! without its data lets two hold at a time, as with one Redis; what several of them add is that some may be down.
//!
//! Tokens: each server counts for itself, the token is the highest number among those that granted, and the others
//! of the majority are raised to it before the grant counts. Two majorities share a server, so the next token is
//! higher, as long as no more servers lose their data than the majority can spare. In the usual case,
//! with all of them at the same number, that takes no second round.

use std::sync::Arc;
use std::time::Duration;

use holdfast_client_core::circuit::CircuitState;
use redis::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::health::Health;
use crate::listening::Listening;
use crate::node::Node;
use crate::store::StoreDown;
use crate::store::{Answer, Attempt, Claim, Store};

#[derive(Debug)]
pub(crate) struct Redlock {
    nodes: Vec<Arc<Node>>,
    health: Arc<Health>,
}

/// What all servers said to one question.
struct Answers<T> {
    /// By the number of the server.
    answered: Vec<(usize, T)>,
    failed: Vec<StoreDown>,
}

impl Redlock {
    pub(crate) fn new(clients: Vec<Client>, patience: Duration) -> Redlock {
        let health = Arc::new(Health::of(clients.len(), majority_of(clients.len())));
        let node = |(number, client)| Node::new(number, client, patience, Arc::clone(&health));
        Redlock { nodes: clients.into_iter().enumerate().map(node).collect(), health }
    }

    fn majority(&self) -> usize {
        majority_of(self.nodes.len())
    }

    /// All are asked at the same time, and all have their patience to answer.
    async fn ask<T, F>(&self, which: &[usize], question: impl Fn(Arc<Node>) -> F) -> Answers<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreDown>> + Send + 'static,
    {
        let mut asked = JoinSet::new();
        for number in which {
            let answer = question(Arc::clone(&self.nodes[*number]));
            let number = *number;
            asked.spawn(async move { (number, answer.await) });
        }
        let mut answers = Answers { answered: Vec::new(), failed: Vec::new() };
        while let Some(answer) = asked.join_next().await {
            match answer {
                Ok((number, Ok(answer))) => answers.answered.push((number, answer)),
                Ok((_, Err(down))) => answers.failed.push(down),
                // A task that was not there to the end, because the program ends.
                Err(_) => answers.failed.push(StoreDown::unexplained()),
            }
        }
        answers
    }

    async fn ask_all<T, F>(&self, question: impl Fn(Arc<Node>) -> F) -> Answers<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreDown>> + Send + 'static,
    {
        let all: Vec<usize> = (0..self.nodes.len()).collect();
        self.ask(&all, question).await
    }

    async fn try_acquire(&self, claim: &Claim, ttl: Duration) -> Result<Attempt, StoreDown> {
        let answers = self
            .ask_all(|node| {
                let claim = claim.clone();
                async move { node.acquire(&claim, ttl).await }
            })
            .await;
        let mut granted = Vec::new();
        let mut free_in = Vec::new();
        for (number, attempt) in &answers.answered {
            match attempt {
                Attempt::Granted { token } => granted.push((*number, *token)),
                Attempt::Busy { free_in: span } => free_in.extend(*span),
            }
        }
        if granted.len() >= self.majority() {
            let highest = granted.iter().map(|(_, token)| *token).max().unwrap_or(0);
            if self.raise_tokens(&granted, highest).await {
                return Ok(Attempt::Granted { token: highest });
            }
        }
        // No part of a lock stays behind, also where it is not known whether there is one.
        let _ = self.try_release(claim).await;
        if answers.answered.len() < self.majority() {
            return Err(self.too_few(answers.failed));
        }
        // The earliest moment at which a majority can be free.
        free_in.sort_unstable();
        let needed = self.majority().saturating_sub(granted.len());
        let free_in = needed.checked_sub(1).and_then(|last| free_in.get(last).copied());
        Ok(Attempt::Busy { free_in })
    }

    /// Whether a majority knows of the token.
    async fn raise_tokens(&self, granted: &[(usize, u64)], highest: u64) -> bool {
        let knows = |count: &(usize, u64)| count.1 == highest;
        let knowing = granted.iter().filter(|count| knows(count)).count();
        if knowing >= self.majority() {
            return true;
        }
        let behind: Vec<usize> =
            granted.iter().filter(|count| !knows(count)).map(|(number, _)| *number).collect();
        let raised =
            self.ask(&behind, |node| async move { node.raise_tokens(highest).await }).await;
        knowing + raised.answered.len() >= self.majority()
    }

    async fn try_extend(&self, claim: &Claim, ttl: Duration) -> Result<bool, StoreDown> {
        let answers = self
            .ask_all(|node| {
                let claim = claim.clone();
                async move { node.extend(&claim, ttl).await }
            })
            .await;
        self.verdict(answers)
    }

    async fn try_release(&self, claim: &Claim) -> Result<bool, StoreDown> {
        let answers = self
            .ask_all(|node| {
                let claim = claim.clone();
                async move { node.release(&claim).await }
            })
            .await;
        self.verdict(answers)
    }

    /// True if a majority says so, false if none can any more.
    fn verdict(&self, answers: Answers<bool>) -> Result<bool, StoreDown> {
        let yes = answers.answered.iter().filter(|(_, answer)| *answer).count();
        let no = answers.answered.len() - yes;
        if yes >= self.majority() {
            Ok(true)
        } else if no > self.nodes.len() - self.majority() {
            Ok(false)
        } else {
            Err(self.too_few(answers.failed))
        }
    }

    fn too_few(&self, failed: Vec<StoreDown>) -> StoreDown {
        let (count, majority) = (self.nodes.len(), self.majority());
        let words: Vec<&str> = failed.iter().map(|down| down.message.as_str()).collect();
        let words = words.join("; ");
        StoreDown {
            message: format!("fewer than {majority} of {count} Redis are of use: {words}"),
            may_have_happened: failed.iter().any(|down| down.may_have_happened),
        }
    }
}

fn majority_of(count: usize) -> usize {
    count / 2 + 1
}

impl Store for Redlock {
    fn acquire<'a>(&'a self, claim: &'a Claim, ttl: Duration) -> Answer<'a, Attempt> {
        Box::pin(self.try_acquire(claim, ttl))
    }

    fn extend<'a>(&'a self, claim: &'a Claim, ttl: Duration) -> Answer<'a, bool> {
        Box::pin(self.try_extend(claim, ttl))
    }

    fn release<'a>(&'a self, claim: &'a Claim) -> Answer<'a, bool> {
        Box::pin(self.try_release(claim))
    }

    /// No single one of them knows when the lock is free: ask again.
    fn listen(&self, _: &str) -> Option<Listening> {
        None
    }

    fn circuit(&self) -> watch::Receiver<CircuitState> {
        self.health.circuit()
    }

    fn returns(&self) -> watch::Receiver<u64> {
        self.health.returns()
    }
}
