//! Panics become failures.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, UnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll},
};

use crate::adapter::{Failure, Operation, Outcome};

/// An operation whose panics are failures.
pub(super) struct Guarded(Operation);

impl Guarded {
    pub(super) fn new(operation: Operation) -> Self {
        Self(operation)
    }

    pub(super) fn poll_once(&mut self, context: &mut Context<'_>) -> Poll<Outcome> {
        let poll = AssertUnwindSafe(|| self.0.as_mut().poll(context));
        catch(poll).unwrap_or_else(|panic| Poll::Ready(Err(panic)))
    }
}

impl Future for Guarded {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        self.poll_once(context)
    }
}

/// Runs `work`; a panic in it becomes a [`Failure`]. What the panic left half done stays with
/// the one request, whose future is not polled again.
pub(super) fn catch<T>(work: impl FnOnce() -> T + UnwindSafe) -> Result<T, Failure> {
    catch_unwind(work).map_err(|panic| Failure::Panic(text_of(panic.as_ref())))
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no text".to_owned())
}
