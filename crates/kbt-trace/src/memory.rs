//! A trace held in memory, as the readers of whole files give it.

use crate::{CtaTrace, Problems, Source, TimeLine, TraceError, TraceInfo};
use std::collections::BTreeMap;

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

    /// The same trace, of which the ticks of all CTAs count from one zero.
    pub(crate) fn on_one_line(mut self) -> Self {
        let zero = self.ctas.iter().filter_map(CtaTrace::first_tick).min().unwrap_or(0);
        self.info.time_line = TimeLine::Trace { zero };
        self
    }

    /// The same trace, of which each SM's clock counted the CTAs that ran there: from its first record from now on.
    pub(crate) fn by_sm(mut self) -> Self {
        let mut zeros: BTreeMap<u32, u64> = BTreeMap::new();
        for (sm, at) in self.ctas.iter().filter_map(|cta| Some((cta.smid?, cta.first_tick()?))) {
            zeros.entry(sm).and_modify(|zero| *zero = at.min(*zero)).or_insert(at);
        }
        for cta in &mut self.ctas {
            let zero = cta.smid.and_then(|sm| zeros.get(&sm)).copied().unwrap_or(0);
            cta.lanes.iter_mut().flat_map(|lane| &mut lane.events).for_each(|event| event.at -= zero);
        }
        self.info.time_line = TimeLine::Sm;
        self
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
