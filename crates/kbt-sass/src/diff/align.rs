//! Which items of two sequences belong together.
//!
//! Myers' algorithm where few edits suffice: its cost is the length times the edits. Where they do not, windows
//! of items that both sides have exactly once hold the sequences together, longest windows first, and what lies
//! between is aligned on its own. So a whole kernel costs seconds at most, however different the two are; only
//! then is the alignment not always the longest.

use std::collections::HashMap;

/// Edits up to which the alignment is the longest there is.
const MOST_EDITS: usize = 1000;
/// Items in a window, the surest first.
const WINDOWS: [usize; 5] = [32, 16, 8, 3, 1];

/// Index pairs of equal shapes, ascending on both sides.
pub(super) fn common_shapes<'s>(a: &'s [String], b: &'s [String]) -> Vec<(usize, usize)> {
    let mut numbers: HashMap<&'s str, u32> = HashMap::new();
    let mut number = |shapes: &'s [String]| -> Vec<u32> {
        let mut of = |s: &'s String| {
            let next = numbers.len() as u32;
            *numbers.entry(s).or_insert(next)
        };
        shapes.iter().map(&mut of).collect()
    };
    let (left, right) = (number(a), number(b));
    common(&left, &right)
}

/// Index pairs of equal items, ascending on both sides.
fn common(a: &[u32], b: &[u32]) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    let mut open = vec![(0, a.len(), 0, b.len())];
    while let Some((mut i, mut to_i, mut j, mut to_j)) = open.pop() {
        while i < to_i && j < to_j && a[i] == b[j] {
            pairs.push((i, j));
            (i, j) = (i + 1, j + 1);
        }
        while i < to_i && j < to_j && a[to_i - 1] == b[to_j - 1] {
            (to_i, to_j) = (to_i - 1, to_j - 1);
            pairs.push((to_i, to_j));
        }
        let (left, right) = (&a[i..to_i], &b[j..to_j]);
        if left.is_empty() || right.is_empty() {
            continue;
        }
        if let Some(found) = myers(left, right) {
            pairs.extend(found.into_iter().map(|(x, y)| (i + x, j + y)));
            continue;
        }
        let anchors = WINDOWS.iter().map(|w| anchors(left, right, *w)).find(|found| !found.is_empty());
        let (mut at, mut with) = (i, j);
        for (x, y) in anchors.unwrap_or_default() {
            open.push((at, i + x, with, j + y));
            pairs.push((i + x, j + y));
            (at, with) = (i + x + 1, j + y + 1);
        }
        // Nothing that both have once: what is left has no order to hold on to.
        if (at, with) != (i, j) {
            open.push((at, to_i, with, to_j));
        }
    }
    pairs.sort_unstable();
    pairs
}

/// Starts of windows of `w` items that each side has exactly once, in one order: the longest such chain.
fn anchors(a: &[u32], b: &[u32], w: usize) -> Vec<(usize, usize)> {
    let once = |items: &[u32]| {
        let mut seen: HashMap<Vec<u32>, Option<usize>> = HashMap::new();
        for (i, window) in items.windows(w).enumerate() {
            seen.entry(window.to_vec()).and_modify(|at| *at = None).or_insert(Some(i));
        }
        seen
    };
    let (left, right) = (once(a), once(b));
    let mut both: Vec<(usize, usize)> =
        left.into_iter().filter_map(|(window, i)| Some((i?, (*right.get(&window)?)?))).collect();
    both.sort_unstable();
    longest_rising(&both)
}

/// The longest part of pairs, sorted by the first number, in which the second rises too.
fn longest_rising(pairs: &[(usize, usize)]) -> Vec<(usize, usize)> {
    // By length of chain: the pair with the least second number that ends one.
    let mut ends: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = vec![None; pairs.len()];
    for (n, (_, y)) in pairs.iter().enumerate() {
        let place = ends.partition_point(|e| pairs[*e].1 < *y);
        before[n] = place.checked_sub(1).map(|p| ends[p]);
        if place == ends.len() {
            ends.push(n);
        } else {
            ends[place] = n;
        }
    }
    let mut chain = Vec::new();
    let mut next = ends.last().copied();
    while let Some(n) = next {
        chain.push(pairs[n]);
        next = before[n];
    }
    chain.reverse();
    chain
}

/// Index pairs of a longest common subsequence; `None` where more than [`MOST_EDITS`] edits are needed.
fn myers(a: &[u32], b: &[u32]) -> Option<Vec<(usize, usize)>> {
    let (n, m) = (a.len() as isize, b.len() as isize);
    let most = (MOST_EDITS as isize).min(n + m);
    let at = |v: &[isize], k: isize| v[(k + most + 1) as usize];
    let mut v = vec![0_isize; (2 * most + 3) as usize];
    let mut trace: Vec<Vec<isize>> = Vec::new();
    for d in 0..=most {
        trace.push(v[(most + 1 - d - 1) as usize..=(most + 1 + d + 1) as usize].to_vec());
        for k in (-d..=d).step_by(2) {
            let down = k == -d || (k != d && at(&v, k - 1) < at(&v, k + 1));
            let mut x = if down { at(&v, k + 1) } else { at(&v, k - 1) + 1 };
            while x < n && x - k < m && a[x as usize] == b[(x - k) as usize] {
                x += 1;
            }
            v[(k + most + 1) as usize] = x;
            if x >= n && x - k >= m {
                return Some(backtrack(&trace, n, m));
            }
        }
    }
    None
}

fn backtrack(trace: &[Vec<isize>], n: isize, m: isize) -> Vec<(usize, usize)> {
    let mut pairs = Vec::new();
    let (mut x, mut y) = (n, m);
    for (d, v) in trace.iter().enumerate().rev() {
        let d = d as isize;
        let at = |k: isize| v[(k + d + 1) as usize];
        let k = x - y;
        let down = k == -d || (k != d && at(k - 1) < at(k + 1));
        let before = if down { k + 1 } else { k - 1 };
        let (px, py) = if d == 0 { (0, 0) } else { (at(before), at(before) - before) };
        while x > px && y > py {
            x -= 1;
            y -= 1;
            pairs.push((x as usize, y as usize));
        }
        (x, y) = (px, py);
    }
    pairs.reverse();
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(a: &[u32], b: &[u32]) -> Vec<(usize, usize)> {
        let pairs = common(a, b);
        assert!(pairs.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 < w[1].1), "{pairs:?}");
        assert!(pairs.iter().all(|(x, y)| a[*x] == b[*y]), "{pairs:?}");
        pairs
    }

    #[test]
    fn a_small_alignment_is_the_longest() {
        let all: Vec<Vec<u32>> =
            (0..3_u32.pow(4)).map(|n| (0..4).map(|d| n / 3_u32.pow(d) % 3).collect()).collect();
        let longest = |a: &[u32], b: &[u32]| {
            let mut table = vec![vec![0; b.len() + 1]; a.len() + 1];
            for i in 1..=a.len() {
                for j in 1..=b.len() {
                    let best = table[i - 1][j].max(table[i][j - 1]);
                    table[i][j] = if a[i - 1] == b[j - 1] { table[i - 1][j - 1] + 1 } else { best };
                }
            }
            table[a.len()][b.len()]
        };
        for a in all.iter().map(|a| &a[..3]) {
            for b in &all {
                assert_eq!(check(a, b).len(), longest(a, b), "{a:?} {b:?}");
            }
        }
    }

    /// Numbers that look random and are the same each time.
    fn numbers(count: usize, of: u32, seed: u32) -> Vec<u32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 8
        };
        (0..count).map(|_| next() % of).collect()
    }

    #[test]
    fn a_large_one_keeps_what_was_only_moved_apart() {
        // Every eighth item is replaced, beyond the edits that Myers is asked for.
        let a = numbers(8_000, 50, 1);
        let noise = numbers(8_000, 50, 2);
        let b: Vec<u32> =
            a.iter().zip(noise).enumerate().map(|(i, (x, n))| if i % 8 == 0 { 50 + n } else { *x }).collect();
        let pairs = check(&a, &b);
        assert!(pairs.len() > 6_700, "{}", pairs.len());
        // Two that have nothing to do with each other still come to an end.
        check(&a, &numbers(8_000, 50, 3));
        assert_eq!(check(&a, &numbers(8_000, 50, 1)).len(), 8_000);
        assert_eq!(check(&vec![1; 5000], &vec![2; 5000]), []);
    }

    #[test]
    fn the_longest_rising_chain_is_found() {
        assert_eq!(longest_rising(&[(0, 3), (1, 0), (2, 1), (3, 9), (4, 2)]), [(1, 0), (2, 1), (4, 2)]);
        assert_eq!(longest_rising(&[]), []);
    }
}
