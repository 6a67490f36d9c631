//! Makes the tables of the tokenizers' vocabularies (`src/pure/tokens`): so they are a part of the binary that is read where it lies, its
//! pages come into memory as they are used, and processes share them.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "what cannot be made ends the build, and cargo says by the environment where it is put"
)]

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use regex_automata::dfa::{Automaton, StartKind, dense};
use regex_automata::util::primitives::StateID;
use regex_automata::util::start;
use regex_automata::{Anchored, Input, MatchKind};

#[path = "pure/tokens/layout.rs"]
mod layout;

use layout::{NO_MERGE, NO_TOKEN, NODE_BITS, Node, TOKEN_BITS, Token};

/// What cuts texts.
type SplitterDfa = dense::DFA<Vec<u32>>;

fn main() {
    println!("cargo::rerun-if-changed=src/build.rs");
    println!("cargo::rerun-if-changed=src/pure/tokens/layout.rs");
    let folder = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo says where"));
    // At once: the crate waits for both.
    std::thread::scope(|threads| {
        threads.spawn(|| write(&folder, "o200k", bpe_openai::o200k_base(), &o200k_rule()));
        write(&folder, "cl100k", bpe_openai::cl100k_base(), CL100K_RULE);
    });
}

fn write(folder: &Path, name: &str, tokenizer: &bpe_openai::Tokenizer, rule: &str) {
    let splitter = splitter(rule);
    let count = u32::try_from(tokenizer.bpe.num_tokens()).unwrap();
    assert!(count < NO_TOKEN, "a token's number has too many bits");
    let texts: Vec<&[u8]> = (0..count).map(|token| tokenizer.bpe.token_bytes(token)).collect();
    let trie = Trie::of(&texts);
    let tokens = tokens(&texts, &trie);
    let nodes = trie.places(|token| is_alone(&splitter, texts[token as usize]));
    let nodes: Vec<u8> = nodes.iter().flat_map(|node| pack_node(node).to_le_bytes()).collect();
    let merges: Vec<u8> = merges(&tokens).iter().flat_map(|merge| merge.to_le_bytes()).collect();
    let tokens: Vec<u8> = tokens
        .iter()
        .flat_map(|token| pack_token(token).to_le_bytes())
        .collect();
    let put = |table: &str, bytes: &[u8]| std::fs::write(folder.join(format!("{name}.{table}")), bytes).unwrap();
    put("nodes", &nodes);
    put("tokens", &tokens);
    put("merges", &merges);
    put("splitter", &pack_splitter(&splitter));
}

/// The automaton that finds the end of the next piece of a text: the rule, and what follows it in every vocabulary. White space before a
/// word leaves its last character to that (the second pattern, whose last character is not a part of the piece).
fn splitter(rule: &str) -> SplitterDfa {
    let config = dense::Config::new()
        .start_kind(StartKind::Anchored)
        .match_kind(MatchKind::LeftmostFirst)
        .minimize(true);
    let built = dense::Builder::new()
        .configure(config)
        .build_many(&[rule, r"\s+\s", r"\s+"]);
    built.unwrap()
}

fn is_alone(splitter: &SplitterDfa, text: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(text) else {
        return false;
    };
    let found = splitter
        .try_search_fwd(&Input::new(text).anchored(Anchored::Yes))
        .unwrap();
    found.is_some_and(|end| end.offset() == text.len() && end.pattern().as_usize() != LOOKS_AHEAD)
}

/// The automaton as `layout` says. Its states are numbered by what they tell: first those that tell no match.
fn pack_splitter(splitter: &SplitterDfa) -> Vec<u8> {
    let start = splitter
        .start_state(&start::Config::new().anchored(Anchored::Yes))
        .unwrap();
    let follow = |state: StateID| -> Vec<StateID> {
        let bytes = (0..=u8::MAX).map(|byte| splitter.next_state(state, byte));
        bytes.chain([splitter.next_eoi_state(state)]).collect()
    };
    let (mut states, mut at) = (vec![start], 0);
    let mut known = HashSet::from([start]);
    while let Some(state) = states.get(at) {
        let new = follow(*state).into_iter().filter(|next| known.insert(*next));
        states.extend(new.collect::<Vec<_>>());
        at += 1;
    }
    let kind = |state: &StateID| match *state {
        state if splitter.is_dead_state(state) => 0,
        state if state == start => 1,
        state if !splitter.is_match_state(state) => 2,
        state if splitter.match_pattern(state, 0).as_usize() != LOOKS_AHEAD => 3,
        _ => 4,
    };
    states.sort_by_key(kind);
    assert_eq!([kind(&states[layout::DEAD]), kind(&states[layout::START])], [0, 1]);
    let first_of = |least: u16| states.iter().take_while(|state| kind(state) < least).count();
    let numbers: HashMap<StateID, usize> = states.iter().copied().zip(0..).collect();
    let rows: Vec<Vec<usize>> = states
        .iter()
        .map(|state| follow(*state).iter().map(|next| numbers[next]).collect())
        .collect();
    // Bytes that no state tells apart are of one class.
    let mut classes: Vec<Vec<usize>> = Vec::new();
    let mut class_of = |byte: usize| {
        let column: Vec<usize> = rows.iter().map(|row| row[byte]).collect();
        classes.iter().position(|class| *class == column).unwrap_or_else(|| {
            classes.push(column);
            classes.len() - 1
        })
    };
    let bytes: Vec<u8> = (0..256).map(|byte| u8::try_from(class_of(byte)).unwrap()).collect();
    let end = class_of(256);
    let mut packed = Vec::new();
    let put = |packed: &mut Vec<u8>, number: usize| packed.extend(u16::try_from(number).unwrap().to_le_bytes());
    let header: [usize; layout::SPLITTER_NUMBERS] = [classes.len(), end, first_of(3), first_of(4)];
    header.iter().for_each(|number| put(&mut packed, *number));
    packed.extend(bytes);
    for state in 0..states.len() {
        classes.iter().for_each(|class| put(&mut packed, class[state]));
    }
    packed
}

/// What each token is made of: the two pieces that are left of its text when all merges that come before it are made.
fn tokens(texts: &[&[u8]], trie: &Trie) -> Vec<Token> {
    let numbers: HashMap<&[u8], u32> = texts.iter().copied().zip(0..).collect();
    let token = |(text, number): (&&[u8], u32)| {
        let (left, right) = parts(text, number, &numbers).unwrap_or((number, number));
        Token {
            left,
            right,
            prefix: trie.longest_before(text),
            length: u32::try_from(text.len()).unwrap(),
        }
    };
    texts.iter().zip(0..).map(token).collect()
}

fn parts(text: &[u8], token: u32, numbers: &HashMap<&[u8], u32>) -> Option<(u32, u32)> {
    // Where the pieces begin, and the end.
    let mut bounds: Vec<usize> = (0..=text.len()).collect();
    let number = |from: usize, to: usize| numbers.get(&text[from..to]).copied().filter(|number| *number < token);
    loop {
        let pairs =
            (0..bounds.len().saturating_sub(2)).filter_map(|at| Some((number(bounds[at], bounds[at + 2])?, at)));
        match pairs.min() {
            Some((_, at)) => bounds.remove(at + 1),
            None => break,
        };
    }
    match bounds.as_slice() {
        [from, middle, to] => Some((number(*from, *middle)?, number(*middle, *to)?)),
        _ => None,
    }
}

/// A hash table with open addresses: at least half of it is free.
fn merges(tokens: &[Token]) -> Vec<u32> {
    let size = (2 * tokens.len()).next_power_of_two();
    let mut merges = vec![NO_MERGE; size];
    for (token, number) in tokens.iter().zip(0..).filter(|(token, number)| token.left != *number) {
        let hash = layout::hash_pair(token.left, token.right);
        let mut place = usize::try_from(hash >> (64 - size.ilog2())).unwrap();
        while merges[place] != NO_MERGE {
            place = (place + 1) % size;
        }
        merges[place] = layout::tag(hash) << TOKEN_BITS | number;
        assert_eq!(layout::unpack_merge(merges[place], hash), Some(number));
        assert_ne!(merges[place], NO_MERGE);
    }
    merges
}

/// All texts that tokens begin with.
struct Trie {
    /// By their numbers: the children by their bytes, and the token.
    nodes: Vec<(Vec<(u8, u32)>, u32)>,
}

impl Trie {
    fn of(texts: &[&[u8]]) -> Trie {
        let mut nodes = vec![(Vec::new(), NO_TOKEN)];
        for (text, token) in texts.iter().zip(0..) {
            let mut at = 0;
            for byte in *text {
                at = match child(&nodes[at].0, *byte) {
                    Some(child) => child,
                    None => {
                        let new = nodes.len();
                        nodes[at].0.push((*byte, u32::try_from(new).unwrap()));
                        nodes.push((Vec::new(), NO_TOKEN));
                        new
                    }
                };
            }
            nodes[at].1 = token;
        }
        Trie { nodes }
    }

    /// The longest token that the text begins with, but is not.
    fn longest_before(&self, text: &[u8]) -> u32 {
        let (mut at, mut longest) = (0, NO_TOKEN);
        for byte in &text[..text.len() - 1] {
            at = child(&self.nodes[at].0, *byte).unwrap();
            if self.nodes[at].1 != NO_TOKEN {
                longest = self.nodes[at].1;
            }
        }
        longest
    }

    /// The nodes in a double array: those with the most children are placed first, and the others fill the gaps.
    fn places(&self, is_alone: impl Fn(u32) -> bool) -> Vec<Node> {
        let mut order: Vec<usize> = (0..self.nodes.len())
            .filter(|at| !self.nodes[*at].0.is_empty())
            .collect();
        order.sort_by_key(|at| std::cmp::Reverse(self.nodes[*at].0.len()));
        let mut array = Array {
            used: vec![false; 256],
            first_free: 1,
        };
        array.used[0] = true;
        let mut place_of = vec![0; self.nodes.len()];
        let mut children_of = vec![0; self.nodes.len()];
        for at in order {
            let children = array.place(&self.nodes[at].0);
            children_of[at] = children;
            for (byte, child) in &self.nodes[at].0 {
                place_of[*child as usize] = children ^ usize::from(*byte);
            }
        }
        let mut places = vec![FREE; array.used.len()];
        for (at, (children, token)) in self.nodes.iter().enumerate() {
            let place = &mut places[place_of[at]];
            place.children = u32::try_from(children_of[at]).unwrap();
            place.token = *token;
            place.is_alone = *token != NO_TOKEN && is_alone(*token);
            for (_, child) in children {
                places[place_of[*child as usize]].parent = u32::try_from(place_of[at]).unwrap();
            }
        }
        assert!(places.len() <= FREE.parent as usize, "a node's place has too many bits");
        places
    }
}

fn child(children: &[(u8, u32)], byte: u8) -> Option<usize> {
    let found = children.iter().find(|(of, _)| *of == byte);
    found.map(|(_, child)| *child as usize)
}

/// Which places of a double array are taken.
struct Array {
    used: Vec<bool>,
    /// Those before it are, once there is only one child to be placed at a time.
    first_free: usize,
}

impl Array {
    /// Takes places for children with these bytes, and says where.
    fn place(&mut self, children: &[(u8, u32)]) -> usize {
        let first = usize::from(children[0].0);
        let fits = |base: usize| children.iter().all(|(byte, _)| !self.used[base ^ usize::from(*byte)]);
        // Many fit only where little is taken; one fits anywhere, and fills what the others have left.
        let from = match children {
            [_] => self.first_free,
            _ => self.used.len().saturating_sub(TRIED_PLACES),
        };
        let mut bases = (from..self.used.len())
            .filter(|place| !self.used[*place])
            .map(|place| place ^ first);
        let base = bases.find(|base| fits(*base));
        if let ([_], Some(base)) = (children, base) {
            self.first_free = base ^ first;
        }
        let base = base.unwrap_or(self.used.len());
        if base == self.used.len() {
            self.used.resize(base + 256, false);
        }
        for (byte, _) in children {
            self.used[base ^ usize::from(*byte)] = true;
        }
        base
    }
}

fn pack_node(node: &Node) -> u64 {
    let packed = u64::from(node.children)
        | u64::from(node.parent) << NODE_BITS
        | u64::from(node.token) << (2 * NODE_BITS)
        | u64::from(node.is_alone) << (2 * NODE_BITS + TOKEN_BITS);
    assert_eq!(Node::unpack(packed), *node);
    packed
}

fn pack_token(token: &Token) -> u64 {
    let packed = u64::from(token.left)
        | u64::from(token.right) << TOKEN_BITS
        | u64::from(token.prefix) << (2 * TOKEN_BITS)
        | u64::from(token.length) << (3 * TOKEN_BITS);
    assert_eq!(Token::unpack(packed), *token);
    packed
}

fn o200k_rule() -> String {
    let word = |letters: &str| format!(r"[^\r\n\p{{L}}\p{{N}}]?{letters}(?i:'s|'t|'re|'ve|'m|'ll|'d)?");
    [
        word(r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"),
        word(r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"),
        r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+$".to_owned(),
    ]
    .join("|")
}

/// The pattern of a splitter whose last character is not a part of the piece.
const LOOKS_AHEAD: usize = 1;
const CL100K_RULE: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+$";
/// A place of the double array that holds no node: none is the child of the last.
const FREE: Node = Node {
    children: 0,
    parent: (1 << NODE_BITS) - 1,
    token: NO_TOKEN,
    is_alone: false,
};
/// So many of the last places are tried for the children of a node before new ones are made.
const TRIED_PLACES: usize = 16 * 256;
