//! Keeps the text of control tokens that comes with messages apart from the template's own: each such
//! text travels through the template as one private code point and is put back afterwards, with its
//! place in the prompt reported. The tokenizer never makes a control token of such a place.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

const FIRST: u32 = 0xf0000;
const LAST: u32 = 0x10fffd;

thread_local! {
    /// The sentinels of the render that this thread runs (python.rs must know them while it prints).
    static CURRENT: RefCell<HashMap<char, String>> = RefCell::default();
}

/// The text that sentinel `c` stands for in the running render.
pub fn text_of(c: char) -> Option<String> {
    if (c as u32) < FIRST {
        return None;
    }
    CURRENT.with(|map| map.borrow().get(&c).cloned())
}

pub fn install(map: HashMap<char, String>) {
    CURRENT.with(|current| *current.borrow_mut() = map);
}

/// Texts of the control tokens as a trie over bytes.
#[derive(Default)]
pub struct Tokens {
    next: HashMap<(u32, u8), u32>,
    /// Per node: a token ends here; some token goes on from here.
    ends: Vec<bool>,
    goes_on: Vec<bool>,
    length_max: usize,
}

impl Tokens {
    pub fn new(texts: impl Iterator<Item = String>) -> Self {
        let mut trie = Tokens { ends: vec![false], goes_on: vec![false], ..Self::default() };
        for text in texts.filter(|t| !t.is_empty()) {
            let mut node = 0u32;
            for &byte in text.as_bytes() {
                trie.goes_on[node as usize] = true;
                node = *trie.next.entry((node, byte)).or_insert_with(|| {
                    trie.ends.push(false);
                    trie.goes_on.push(false);
                    trie.ends.len() as u32 - 1
                });
            }
            trie.ends[node as usize] = true;
            trie.length_max = trie.length_max.max(text.len());
        }
        trie
    }

    /// Bytes of the longest token at the start of `bytes`, 0 when there is none.
    fn longest(&self, bytes: &[u8]) -> usize {
        let (mut node, mut best) = (0u32, 0);
        for (i, &byte) in bytes.iter().enumerate() {
            match self.next.get(&(node, byte)) {
                None => break,
                Some(&n) => node = n,
            }
            if self.ends[node as usize] {
                best = i + 1;
            }
        }
        best
    }

    /// True when `bytes` is a beginning of some token and not the whole of it.
    fn is_beginning(&self, bytes: &[u8]) -> bool {
        let mut node = 0u32;
        for &byte in bytes {
            match self.next.get(&(node, byte)) {
                None => return false,
                Some(&n) => node = n,
            }
        }
        self.goes_on[node as usize]
    }

    /// Parts of `s` to be hidden, ascending and disjoint: whole tokens, leftmost and longest first, and
    /// a beginning of a token at the end of `s`, which a template could join with the next string.
    fn parts(&self, s: &str) -> Vec<Range<usize>> {
        let (bytes, mut parts, mut at) = (s.as_bytes(), Vec::new(), 0);
        if self.length_max == 0 {
            return parts;
        }
        while at < bytes.len() {
            match self.longest(&bytes[at..]) {
                0 => at += 1,
                n => {
                    parts.push(at..at + n);
                    at += n;
                }
            }
        }
        // Templates strip white space before they join.
        let end = s.trim_end_matches(crate::python::is_space).len();
        let done = parts.last().map_or(0, |p| p.end);
        for begin in done.max(end.saturating_sub(self.length_max))..end {
            // A word such as a role name is not a beginning worth hiding: templates compare it.
            if s.is_char_boundary(begin)
                && s[begin..end].chars().any(|c| !c.is_alphanumeric())
                && self.is_beginning(&bytes[begin..end])
            {
                parts.push(begin..end);
                break;
            }
        }
        parts
    }
}

/// The sentinels of one render.
pub struct Sentinels<'a> {
    tokens: &'a Tokens,
    taken: HashSet<char>,
    next: u32,
    by_text: HashMap<String, char>,
}

impl<'a> Sentinels<'a> {
    /// `taken`: private code points that the template or any input holds.
    pub fn new(tokens: &'a Tokens, taken: HashSet<char>) -> Self {
        Sentinels { tokens, taken, next: FIRST, by_text: HashMap::new() }
    }

    /// A code point that nothing else uses; None when the planes are used up.
    pub fn fresh(&mut self) -> Option<char> {
        while self.next <= LAST {
            let c = char::from_u32(self.next);
            self.next += 1;
            if let Some(c) = c.filter(|c| !self.taken.contains(c)) {
                return Some(c);
            }
        }
        None
    }

    /// `s` with the texts of control tokens hidden.
    pub fn hide(&mut self, s: &str) -> Option<String> {
        let parts = self.tokens.parts(s);
        if parts.is_empty() {
            return Some(s.to_string());
        }
        let (mut out, mut at) = (String::with_capacity(s.len()), 0);
        for part in parts {
            out.push_str(&s[at..part.start]);
            let text = &s[part.clone()];
            let c = match self.by_text.get(text) {
                Some(&c) => c,
                None => {
                    let c = self.fresh()?;
                    self.by_text.insert(text.to_string(), c);
                    c
                }
            };
            out.push(c);
            at = part.end;
        }
        out.push_str(&s[at..]);
        Some(out)
    }

    pub fn map(&self) -> HashMap<char, String> {
        self.by_text.iter().map(|(text, &c)| (c, text.clone())).collect()
    }
}

/// Private code points of `s`, which no sentinel may be.
pub fn collect_private(s: &str, taken: &mut HashSet<char>) {
    // Planes 15 and 16 start with F3 B0.. or F4 in UTF-8: most texts hold neither byte.
    if s.bytes().any(|b| b >= 0xf3) {
        taken.extend(s.chars().filter(|&c| c as u32 >= FIRST));
    }
}

/// Puts the texts back; the ranges are bytes of the result, ascending and disjoint.
pub fn restore(text: &str, map: &HashMap<char, String>) -> (String, Vec<Range<usize>>) {
    if map.is_empty() {
        return (text.to_string(), Vec::new());
    }
    let (mut out, mut ranges) = (String::with_capacity(text.len()), Vec::new());
    for c in text.chars() {
        match map.get(&c) {
            None => out.push(c),
            Some(hidden) => {
                let begin = out.len();
                out.push_str(hidden);
                ranges.push(begin..out.len());
            }
        }
    }
    (out, ranges)
}
