//! The log as a whole, on the simulated disk and on real files.

#[cfg(test)]
mod common;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod damage;
#[cfg(test)]
mod directory;
#[cfg(test)]
mod fault;
#[cfg(test)]
mod file_disk;
#[cfg(test)]
mod model;
#[cfg(test)]
mod retention;
#[cfg(test)]
mod run;
#[cfg(test)]
mod turn;
