//! A deterministic simulation of whole Holdfast clusters, and the checkers that judge what happened.

pub mod check;
pub mod history;
