//! The extraction against problems small enough to enumerate.

use super::*;
use crate::cost::ISSUE;

fn choice(tag: usize, needs: &[usize], xu: f64, issue: f64) -> Choice {
    let mut cost = Cost { issue_slots: issue, ..Cost::default() };
    cost.cycles[4] = xu;
    cost.cycles[ISSUE] = issue / 128.0;
    Choice { tag, needs: needs.to_vec(), cost, latency: 1.0 }
}

fn best(problem: &Problem) -> Solution {
    let found = problem.solve(&[], None, 10_000);
    assert!(found.complete);
    let best = found.best.unwrap();
    assert!(!best.key.beats(&found.bound), "a solution below the bound");
    best
}

#[test]
fn a_shared_term_is_paid_once() {
    // The root needs 1 and 2. Alone each is cheaper by its own term, together by sharing 3.
    let problem = Problem {
        classes: vec![
            vec![choice(0, &[1, 2], 0.0, 0.0)],
            vec![choice(0, &[], 0.0, 3.0), choice(1, &[3], 0.0, 0.5)],
            vec![choice(0, &[], 0.0, 3.0), choice(1, &[3], 0.0, 0.5)],
            vec![choice(0, &[], 0.0, 4.0)],
        ],
        root: 0,
    };
    let best = best(&problem);
    assert_eq!((best.key.issue_slots, best.chosen[1], best.chosen[2]), (5.0, Some(1), Some(1)));
}

#[test]
fn the_busiest_pipe_comes_before_issue_slots() {
    let problem =
        Problem { classes: vec![vec![choice(0, &[], 1.0, 1.0), choice(1, &[], 0.5, 9.0)]], root: 0 };
    assert_eq!(best(&problem).chosen[0], Some(1));
}

#[test]
fn cycles_are_no_solutions() {
    // 1 = f(2) and 2 = g(1) cost nothing but define nothing.
    let problem = Problem {
        classes: vec![
            vec![choice(0, &[1], 0.0, 0.0)],
            vec![choice(0, &[2], 0.0, 0.0), choice(1, &[], 0.0, 5.0)],
            vec![choice(0, &[1], 0.0, 0.0)],
        ],
        root: 0,
    };
    assert_eq!(best(&problem).key.issue_slots, 5.0);
}

#[test]
fn exhaustive_search_agrees_on_small_random_graphs() {
    let mut seed = 7u64;
    let mut next = |n: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % n
    };
    for _ in 0..300 {
        let size = 6;
        let classes: Vec<Vec<Choice>> = (0..size)
            .map(|i| {
                (0..1 + next(3) as usize)
                    .map(|tag| {
                        let needs: Vec<usize> =
                            (0..next(3)).map(|_| next(size as u64) as usize).filter(|&n| n != i).collect();
                        let mut needs = needs;
                        needs.sort_unstable();
                        needs.dedup();
                        choice(tag, &needs, next(4) as f64, next(5) as f64)
                    })
                    .collect()
            })
            .collect();
        let problem = Problem { classes, root: 0 };
        let brute = brute_force(&problem);
        let found = problem.solve(&[], None, 100_000);
        assert!(found.complete);
        // A relaxation is below every program, also where the search itself gives up at once.
        for bound in [found.bound, problem.solve(&[], None, 1).bound] {
            if let Some(brute) = brute {
                assert!(!brute.beats(&bound), "{brute:?} beats the bound {bound:?}");
            }
        }
        match (brute, found.best) {
            (None, None) => {}
            (Some(a), Some(b)) => assert!(!a.beats(&b.key) && !b.key.beats(&a), "{a:?} {:?}", b.key),
            other => panic!("{other:?}"),
        }
    }
}

fn brute_force(problem: &Problem) -> Option<Key> {
    let sizes: Vec<usize> = problem.classes.iter().map(Vec::len).collect();
    let mut best: Option<Key> = None;
    for mut code in 0..sizes.iter().product::<usize>() {
        let pick: Vec<usize> = sizes
            .iter()
            .map(|&n| {
                let k = code % n;
                code /= n;
                k
            })
            .collect();
        // Take what the root needs; refuse cycles by depth-first marks.
        let mut mark = vec![0u8; sizes.len()];
        if visit(problem, &pick, problem.root, &mut mark) {
            let chosen = (0..sizes.len()).map(|i| (mark[i] == 2).then_some(pick[i])).collect();
            let key = problem.price(chosen).key;
            if best.is_none_or(|b| key.beats(&b)) {
                best = Some(key);
            }
        }
    }
    best
}

fn visit(problem: &Problem, pick: &[usize], at: usize, mark: &mut [u8]) -> bool {
    match mark[at] {
        1 => return false,
        2 => return true,
        _ => mark[at] = 1,
    }
    let fine = problem.classes[at][pick[at]].needs.iter().all(|&n| visit(problem, pick, n, mark));
    mark[at] = 2;
    fine
}
