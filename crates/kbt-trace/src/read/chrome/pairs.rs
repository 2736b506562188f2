//! Begins and ends of one thread, in any order, made into spans.

/// A begin or an end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    pub(super) at: u64,
    pub(super) begins: bool,
    /// Its record's index in the file.
    pub(super) record: usize,
}

/// What belongs together.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Paired {
    /// The begin's record, start and end.
    pub(super) spans: Vec<(usize, u64, u64)>,
    /// Records.
    pub(super) orphan_begins: Vec<usize>,
    /// Records.
    pub(super) orphan_ends: Vec<usize>,
}

/// Pairs the marks of one thread. An end that is named ends the last open begin of its name, one without a name the
/// last open begin.
///
/// Where the file is in order of time, its order also holds at equal times. Else ends come before begins there, as they
/// do where one span follows another; an end that would then find no begin waits for those of its own time.
pub(super) fn pair<'a>(mut marks: Vec<Mark>, name: impl Fn(usize) -> &'a str) -> Paired {
    let mut open: Vec<Mark> = Vec::new();
    let mut paired = Paired::default();
    let ordered = marks.is_sorted_by_key(|mark| mark.at);
    if !ordered {
        marks.sort_by_key(|mark| (mark.at, mark.begins));
    }
    let close = |open: &mut Vec<Mark>, end: Mark, spans: &mut Vec<_>| {
        let ends = name(end.record);
        let begun = open.iter().rposition(|begin| ends.is_empty() || name(begin.record) == ends);
        let begin = begun.map(|index| open.remove(index));
        spans.extend(begin.map(|begin| (begin.record, begin.at, end.at)));
        begin.is_some()
    };
    for same in marks.chunk_by(|a, b| a.at == b.at) {
        let mut late = Vec::new();
        for &mark in same {
            if mark.begins {
                open.push(mark);
            } else if !close(&mut open, mark, &mut paired.spans) {
                late.push(mark);
            }
        }
        for mark in late {
            if ordered || !close(&mut open, mark, &mut paired.spans) {
                paired.orphan_ends.push(mark.record);
            }
        }
    }
    paired.orphan_begins = open.into_iter().map(|mark| mark.record).collect();
    paired
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs `NAME` as a begin and `/NAME` as an end.
    fn paired(marks: &[(u64, &str)]) -> (Vec<(String, u64, u64)>, usize, usize) {
        let all = marks.iter().enumerate();
        let all = all.map(|(record, (at, name))| Mark { at: *at, begins: !name.starts_with('/'), record });
        let name = |record: usize| marks[record].1.trim_start_matches('/');
        let Paired { spans, orphan_begins, orphan_ends } = pair(all.collect(), name);
        let spans = spans.into_iter().map(|(begin, from, to)| (name(begin).to_owned(), from, to)).collect();
        (spans, orphan_begins.len(), orphan_ends.len())
    }

    fn span(name: &str, from: u64, to: u64) -> (String, u64, u64) {
        (name.to_owned(), from, to)
    }

    #[test]
    fn names_pair_spans_that_cross_and_nesting_those_without() {
        let crossing = paired(&[(0, "a"), (3, "b"), (6, "/a"), (9, "/b")]);
        assert_eq!(crossing, (vec![span("a", 0, 6), span("b", 3, 9)], 0, 0));
        let nested = paired(&[(0, "a"), (3, "b"), (6, "/"), (9, "/")]);
        assert_eq!(nested, (vec![span("b", 3, 6), span("a", 0, 9)], 0, 0));
        assert_eq!(paired(&[(0, "a"), (5, "/b"), (9, "/a")]), (vec![span("a", 0, 9)], 0, 1));
        assert_eq!(paired(&[(0, "a"), (5, "b"), (9, "/a")]), (vec![span("a", 0, 9)], 1, 0));
    }

    #[test]
    fn the_order_of_the_file_is_not_that_of_time() {
        let spans = vec![span("a", 0, 5), span("a", 5, 9), span("b", 9, 9), span("a", 9, 12)];
        let begins = [(0, "a"), (5, "a"), (9, "b"), (9, "a")];
        let ends = [(5, "/a"), (9, "/a"), (9, "/b"), (12, "/a")];
        for (first, then) in [(begins, ends), (ends, begins)] {
            assert_eq!(paired(&[first, then].concat()), (spans.clone(), 0, 0));
        }
    }

    #[test]
    fn at_equal_times_a_file_in_order_is_taken_at_its_word() {
        let inner = paired(&[(0, "a"), (5, "b"), (5, "/"), (9, "/")]);
        assert_eq!(inner, (vec![span("b", 5, 5), span("a", 0, 9)], 0, 0));
    }
}
