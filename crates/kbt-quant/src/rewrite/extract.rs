//! The cheapest choice of one term a class, with shared terms paid once. Knows nothing of egg or of programs.
//!
//! Exact branch and bound. A state has chosen terms for some classes and owes terms for others; its bound is what
//! is spent plus the least own cost of every class that no completion can do without. A completed search proves its
//! result optimal; one that runs out of steps reports the bound at the root instead.

use crate::cost::Cost;

/// One term of a class.
#[derive(Debug, Clone)]
pub(super) struct Choice {
    /// The caller's name for it.
    pub(super) tag: usize,
    /// Classes whose value it uses, each once.
    pub(super) needs: Vec<usize>,
    pub(super) cost: Cost,
    pub(super) latency: f64,
}

/// Classes with their terms, and the class that must have a value.
#[derive(Debug, Clone)]
pub(super) struct Problem {
    pub(super) classes: Vec<Vec<Choice>>,
    pub(super) root: usize,
}

/// What is minimised, in this order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Key {
    pub(super) busiest: f64,
    pub(super) issue_slots: f64,
    pub(super) chain: f64,
}

impl Key {
    /// Whether `self` is smaller by more than rounding.
    pub(super) fn beats(&self, other: &Self) -> bool {
        const EPS: f64 = 1e-9;
        for (a, b) in
            [(self.busiest, other.busiest), (self.issue_slots, other.issue_slots), (self.chain, other.chain)]
        {
            if (a - b).abs() > EPS * a.abs().max(b.abs()).max(1.0) {
                return a < b;
            }
        }
        false
    }
}

/// A complete choice.
#[derive(Debug, Clone)]
pub(super) struct Solution {
    /// The index into each class's choices; `None` for classes that are not needed.
    pub(super) chosen: Vec<Option<usize>>,
    pub(super) cost: Cost,
    pub(super) key: Key,
}

/// The result of a search.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) best: Option<Solution>,
    /// Whether every alternative was excluded.
    pub(super) complete: bool,
    /// How many steps it took.
    pub(super) steps: usize,
    /// The relaxation at the root: no solution is below it.
    pub(super) bound: Key,
}

/// A set of classes as bits.
#[derive(Debug, Clone, PartialEq)]
struct Set(Vec<u64>);

impl Set {
    fn empty(size: usize) -> Self {
        Self(vec![0; size.div_ceil(64)])
    }

    fn full(size: usize) -> Self {
        Self(vec![u64::MAX; size.div_ceil(64)])
    }

    fn insert(&mut self, i: usize) {
        self.0[i / 64] |= 1 << (i % 64);
    }

    fn contains(&self, i: usize) -> bool {
        self.0[i / 64] >> (i % 64) & 1 == 1
    }

    fn join(&mut self, other: &Self) {
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a |= b;
        }
    }

    fn meet(&mut self, other: &Self) {
        for (a, b) in self.0.iter_mut().zip(&other.0) {
            *a &= b;
        }
    }
}

impl Problem {
    /// Removes terms that another term of the class can replace: it costs no more on any pipe, is no slower and needs
    /// a subset of the classes.
    pub(super) fn prune(&mut self) {
        for (class, choices) in self.classes.iter_mut().enumerate() {
            let mut kept: Vec<Choice> = Vec::new();
            for choice in choices.drain(..) {
                let replaces = |a: &Choice, b: &Choice| {
                    a.cost.issue_slots <= b.cost.issue_slots
                        && a.cost.cycles.iter().zip(b.cost.cycles).all(|(x, y)| *x <= y)
                        && a.latency <= b.latency
                        && a.needs.iter().all(|n| b.needs.contains(n))
                };
                if choice.needs.contains(&class) {
                    continue;
                }
                if kept.iter().any(|k| replaces(k, &choice)) {
                    continue;
                }
                kept.retain(|k| !replaces(&choice, k));
                kept.push(choice);
            }
            *choices = kept;
        }
    }

    /// For every class the classes that any term for it needs in the end, itself included.
    fn required(&self) -> Vec<Set> {
        let size = self.classes.len();
        let mut required: Vec<Set> = (0..size)
            .map(|i| {
                let mut set = Set::empty(size);
                set.insert(i);
                set
            })
            .collect();
        loop {
            let mut changed = false;
            for (i, choices) in self.classes.iter().enumerate().rev() {
                let mut common = Set::full(size);
                for choice in choices {
                    let mut all = Set::empty(size);
                    for &need in &choice.needs {
                        all.join(&required[need]);
                    }
                    common.meet(&all);
                }
                if choices.is_empty() {
                    common = Set::empty(size);
                }
                common.join(&required[i]);
                changed |= common != required[i];
                required[i] = common;
            }
            if !changed {
                return required;
            }
        }
    }

    /// The longest chain below each class if every class takes its shortest term, or the chosen one.
    fn depths(&self, chosen: &[Option<usize>]) -> Vec<f64> {
        let mut depth = vec![f64::INFINITY; self.classes.len()];
        loop {
            let mut changed = false;
            // From the last class on: they are numbered from the root, so what a class needs mostly comes first.
            for (i, choices) in self.classes.iter().enumerate().rev() {
                let of = |c: &Choice| c.latency + c.needs.iter().map(|&n| depth[n]).fold(0.0, f64::max);
                let best = match chosen[i] {
                    Some(k) => of(&choices[k]),
                    None => choices.iter().map(of).fold(f64::INFINITY, f64::min),
                };
                if best < depth[i] {
                    depth[i] = best;
                    changed = true;
                }
            }
            if !changed {
                return depth;
            }
        }
    }

    /// A given complete choice, priced.
    pub(super) fn price(&self, chosen: Vec<Option<usize>>) -> Solution {
        let mut cost = Cost::default();
        for (choices, k) in self.classes.iter().zip(&chosen) {
            if let Some(k) = k {
                cost.add(&choices[*k].cost, 1.0);
            }
        }
        let chain = self.depths(&chosen)[self.root];
        let key = Key { busiest: cost.busiest(), issue_slots: cost.issue_slots, chain };
        Solution { chosen, cost, key }
    }

    /// The best choice that uses none of `banned` (class, tag), in at most `limit` steps. `start` is a known
    /// solution to beat.
    pub(super) fn solve(&self, banned: &[(usize, usize)], start: Option<Solution>, limit: usize) -> Found {
        let required = self.required();
        let least: Vec<Cost> = self.classes.iter().map(|choices| minimum(choices)).collect();
        let mut search = Search {
            problem: self,
            banned,
            required: &required,
            least: &least,
            chosen: vec![None; self.classes.len()],
            open: vec![self.root],
            spent: Cost::default(),
            best: start,
            steps: 0,
            limit,
        };
        let mut bound = search.bound();
        bound.chain = self.depths(&search.chosen)[self.root];
        search.go();
        Found { complete: search.steps < limit, steps: search.steps, best: search.best, bound }
    }
}

fn minimum(choices: &[Choice]) -> Cost {
    let mut least = Cost::default();
    for (i, slot) in least.cycles.iter_mut().enumerate() {
        *slot = choices.iter().map(|c| c.cost.cycles[i]).fold(f64::INFINITY, f64::min);
    }
    least.issue_slots = choices.iter().map(|c| c.cost.issue_slots).fold(f64::INFINITY, f64::min);
    if choices.is_empty() { Cost::default() } else { least }
}

struct Search<'a> {
    problem: &'a Problem,
    banned: &'a [(usize, usize)],
    required: &'a [Set],
    least: &'a [Cost],
    chosen: Vec<Option<usize>>,
    open: Vec<usize>,
    spent: Cost,
    best: Option<Solution>,
    steps: usize,
    limit: usize,
}

impl Search<'_> {
    /// What any completion costs at least; the chain is left at 0.
    fn bound(&self) -> Key {
        let mut owed = Set::empty(self.problem.classes.len());
        for &class in &self.open {
            owed.join(&self.required[class]);
        }
        let mut cost = self.spent;
        for (class, least) in self.least.iter().enumerate() {
            if self.chosen[class].is_none() && owed.contains(class) {
                cost.add(least, 1.0);
            }
        }
        Key { busiest: cost.busiest(), issue_slots: cost.issue_slots, chain: 0.0 }
    }

    fn worth(&self) -> bool {
        let Some(best) = &self.best else { return true };
        let mut bound = self.bound();
        if bound.beats(&best.key) {
            // The chain decides only between equals on both counts before it.
            let equal = Key { chain: best.key.chain, ..bound };
            if !equal.beats(&best.key) {
                bound.chain = self.problem.depths(&self.chosen)[self.problem.root];
                return bound.beats(&best.key);
            }
            return true;
        }
        false
    }

    /// Whether `from` is reached from `class` through chosen terms.
    fn reaches(&self, class: usize, target: usize) -> bool {
        let mut seen = Set::empty(self.chosen.len());
        let mut stack = vec![class];
        while let Some(at) = stack.pop() {
            if at == target {
                return true;
            }
            if seen.contains(at) {
                continue;
            }
            seen.insert(at);
            if let Some(k) = self.chosen[at] {
                stack.extend(&self.problem.classes[at][k].needs);
            }
        }
        false
    }

    fn go(&mut self) {
        if self.steps >= self.limit {
            return;
        }
        self.steps += 1;
        if !self.worth() {
            return;
        }
        // The class with the fewest terms decides the most.
        let Some(at) = (0..self.open.len()).min_by_key(|&i| self.problem.classes[self.open[i]].len()) else {
            self.best = Some(self.problem.price(self.chosen.clone()));
            return;
        };
        let class = self.open.swap_remove(at);
        let choices = &self.problem.classes[class];
        let mut order: Vec<(f64, usize)> = (0..choices.len())
            .filter(|&k| !self.banned.contains(&(class, choices[k].tag)))
            .map(|k| (self.outlook(&choices[k]), k))
            .collect();
        order.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (_, k) in order {
            let choice = &choices[k];
            if choice.needs.iter().any(|&n| self.reaches(n, class)) {
                continue;
            }
            let before = (self.spent, self.open.len());
            self.chosen[class] = Some(k);
            self.spent.add(&choice.cost, 1.0);
            for &need in &choice.needs {
                if self.chosen[need].is_none() && !self.open.contains(&need) {
                    self.open.push(need);
                }
            }
            let open = self.open.clone();
            self.go();
            self.open = open;
            self.open.truncate(before.1);
            self.spent = before.0;
            self.chosen[class] = None;
        }
        self.open.push(class);
        let last = self.open.len() - 1;
        self.open.swap(at, last);
    }

    /// What a term adds at least, by issue slots: the order in which terms are tried.
    fn outlook(&self, choice: &Choice) -> f64 {
        let mut owed = Set::empty(self.chosen.len());
        for &need in &choice.needs {
            owed.join(&self.required[need]);
        }
        let rest: f64 = (0..self.chosen.len())
            .filter(|&c| owed.contains(c) && self.chosen[c].is_none())
            .map(|c| self.least[c].issue_slots + 128.0 * self.least[c].busiest())
            .sum();
        choice.cost.issue_slots + 128.0 * choice.cost.busiest() + rest
    }
}

#[cfg(test)]
#[path = "extract_tests.rs"]
mod tests;
