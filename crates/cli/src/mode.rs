//! Modes of holding, in words.

use holdfast_proto::v1::Mode;

/// As programs read it.
pub(crate) fn as_word(mode: Mode) -> &'static str {
    match mode {
        Mode::Shared => "shared",
        Mode::Permit => "permit",
        Mode::Exclusive | Mode::Unspecified => "exclusive",
    }
}

/// For a cell of a table.
pub(crate) fn in_cell(mode: &str, permits: u32) -> String {
    match permits {
        0 => mode.to_owned(),
        permits => format!("{mode} of {permits}"),
    }
}
