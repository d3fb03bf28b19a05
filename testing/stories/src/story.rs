//! What a story is.

use std::pin::Pin;

use crate::failure::StoryFailure;
use crate::stage::Stage;
use crate::transcript::Transcript;

#[derive(Debug)]
pub(crate) struct Story {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) nodes: u64,
    pub(crate) play: for<'a> fn(&'a mut Stage, &'a mut Transcript) -> Playing<'a>,
}

impl Story {
    pub(crate) fn full_title(&self) -> String {
        format!("{} ({} nodes): {}", self.name, self.nodes, self.title)
    }
}

pub(crate) type Playing<'a> = Pin<Box<dyn Future<Output = Result<(), StoryFailure>> + 'a>>;
