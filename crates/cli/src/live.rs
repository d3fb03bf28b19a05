//! What `watch` and `top` share: the state of the locks as events tell it, and a terminal to draw it on.

pub(crate) mod board;
pub(crate) mod drawing;
pub(crate) mod screen;
