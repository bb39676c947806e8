//! Tools that the model of a chat may call: a call is shown, permitted or refused, and carried out, and the model reads
//! the result.

use crossbeam_channel::Receiver;
use hone_protocol::{Message, Role, Tool, ToolCall};

use crate::describe::on_one_line;
use crate::interrupt::Listening;

/// The result that the model reads for a refused call.
const REFUSED: &str = "The call was not carried out: the person did not allow it.";

/// The tools of a chat.
pub trait Tools {
    /// The tools that the model may call.
    fn offered(&self) -> &[Tool];

    /// Whether this call may be carried out; the user may be asked.
    ///
    /// # Errors
    /// When the terminal cannot be used.
    fn permit(&self, call: &ToolCall) -> anyhow::Result<Permit>;

    /// Carries a call out, until something is `pressed`.
    fn call(&self, call: &ToolCall, pressed: &Receiver<()>) -> Called;
}

/// Whether a call may be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Permit {
    /// It may.
    Allowed,
    /// It may not, for this reason, which the user is told.
    Refused(&'static str),
    /// The user wants to stop the answer.
    Interrupted,
}

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Called {
    /// The tool's text.
    Said(String),
    /// The reason why the tool says nothing.
    Failed(String),
    /// The user wants to stop the answer.
    Interrupted,
}

/// A chat without tools.
pub struct NoTools;

impl Tools for NoTools {
    fn offered(&self) -> &[Tool] {
        &[]
    }

    fn permit(&self, _: &ToolCall) -> anyhow::Result<Permit> {
        Ok(Permit::Refused("there are no tools"))
    }

    fn call(&self, _: &ToolCall, _: &Receiver<()>) -> Called {
        Called::Failed("there are no tools".to_owned())
    }
}

/// Carries out one call, if it is permitted, and returns the result for the model; `None` after a Ctrl-C.
///
/// # Errors
/// When the user cannot be asked.
pub(crate) fn result_of(
    tools: &dyn Tools,
    call: &ToolCall,
    listening: &Listening<'_>,
    note: &mut dyn FnMut(&str),
) -> anyhow::Result<Option<Message>> {
    // In full, however long: the user cannot permit a call without seeing it.
    note(&format!("the model calls {} {}", on_one_line(&call.name), call.arguments));
    match tools.permit(call)? {
        Permit::Interrupted => return Ok(None),
        Permit::Refused(reason) => {
            note(&format!("not called: {reason}"));
            return Ok(Some(Message::new(Role::Tool, REFUSED)));
        }
        Permit::Allowed => {}
    }
    match tools.call(call, listening.pressed()) {
        Called::Interrupted => Ok(None),
        Called::Said(text) => Ok(Some(Message::new(Role::Tool, text))),
        Called::Failed(reason) => {
            note(&format!("the call failed: {}", on_one_line(&reason)));
            Ok(Some(Message::new(Role::Tool, format!("The call failed: {reason}"))))
        }
    }
}
