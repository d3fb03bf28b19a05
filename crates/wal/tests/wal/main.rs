//! The log as a whole, on the simulated disk and on real files.

#[cfg(test)]
mod common;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod damage;
#[cfg(test)]
mod descriptors;
#[cfg(test)]
mod directory;
#[cfg(test)]
mod fault;
#[cfg(test)]
mod file_disk;
#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod model;
#[cfg(test)]
mod retention;
#[cfg(test)]
mod run;
#[cfg(test)]
#[path = "../../../../fuzz/support.rs"]
#[allow(clippy::panic, clippy::print_stdout, clippy::unwrap_used, reason = "it is for tests")]
mod support;
#[cfg(test)]
mod turn;
