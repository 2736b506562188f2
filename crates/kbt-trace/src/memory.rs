//! A trace held in memory, as the readers of whole files give it.

use crate::{CtaTrace, Problems, Source, TraceError, TraceInfo};

/// A trace held in memory.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryTrace {
    /// What it says of itself.
    pub info: TraceInfo,
    /// Its CTAs.
    pub ctas: Vec<CtaTrace>,
    /// What was odd about it.
    pub problems: Problems,
    next: usize,
}

impl MemoryTrace {
    /// A trace from its parts.
    #[must_use]
    pub const fn new(info: TraceInfo, ctas: Vec<CtaTrace>, problems: Problems) -> Self {
        Self { info, ctas, problems, next: 0 }
    }
}

impl Source for MemoryTrace {
    fn info(&self) -> &TraceInfo {
        &self.info
    }

    fn next_cta(&mut self, cta: &mut CtaTrace) -> Result<bool, TraceError> {
        let Some(found) = self.ctas.get_mut(self.next) else { return Ok(false) };
        self.next += 1;
        *cta = std::mem::take(found);
        Ok(true)
    }

    fn problems(&self) -> &Problems {
        &self.problems
    }
}
