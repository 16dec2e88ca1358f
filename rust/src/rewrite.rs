//! What the template language of transformers has and minijinja's parser lacks, rewritten in the source
//! before it is compiled: {% generation %} blocks and `'text %s' % value`. Lines keep their numbers.

/// Compiling a chain of `~` takes time in the square of its length.
const CONCATENATIONS_MAX: usize = 1_000;

/// The source as minijinja takes it; None when one expression is a chain too long to compile.
pub fn rewrite(source: &str) -> Option<String> {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find('{') {
        let (text, code) = rest.split_at(at);
        out.push_str(text);
        rest = code;
        let taken = match rest.as_bytes().get(1) {
            Some(b'#') => copy_comment(rest, &mut out),
            Some(b'%') => copy_block(rest, &mut out)?,
            Some(b'{') => copy_code(rest, 2, "}}", &mut out)?,
            _ => {
                out.push('{');
                1
            }
        };
        rest = &rest[taken..];
    }
    out.push_str(rest);
    Some(out)
}

fn copy_comment(rest: &str, out: &mut String) -> usize {
    let end = rest.find("#}").map_or(rest.len(), |i| i + 2);
    out.push_str(&rest[..end]);
    end
}

fn copy_block(rest: &str, out: &mut String) -> Option<usize> {
    let inner = rest[2..].trim_start_matches(['-', '+']);
    let sign_end = rest.len() - inner.len();
    let word_at = inner.len() - inner.trim_start().len();
    let word_len = inner[word_at..].find(|c: char| !c.is_alphanumeric() && c != '_');
    let word = &inner[word_at..word_at + word_len.unwrap_or(inner.len() - word_at)];
    let after = sign_end + word_at + word.len();
    match word {
        // Marks the parts a model is trained on; renders as if it were not there.
        "generation" | "endgeneration" => {
            out.push_str(&rest[..sign_end + word_at]);
            out.push_str(if word == "generation" { "if true" } else { "endif" });
            Some(after)
        }
        "raw" => {
            let end = rest.find("endraw").map_or(rest.len(), |i| i + "endraw".len());
            out.push_str(&rest[..end]);
            Some(end)
        }
        _ => copy_code(rest, 2, "%}", out),
    }
}

/// Copies code up to and with `end`, rewriting `'..' % operand`. Returns the bytes taken.
fn copy_code(rest: &str, begin: usize, end: &str, out: &mut String) -> Option<usize> {
    let mut concatenations = 0;
    let bytes = rest.as_bytes();
    let (mut at, mut copied, mut depth, mut after_string) = (begin, 0, 0usize, false);
    while at < bytes.len() {
        let byte = bytes[at];
        match byte {
            b'\'' | b'"' => {
                at = string_end(bytes, at);
                after_string = true;
                continue;
            }
            _ if depth == 0 && rest[at..].starts_with(end) => {
                at += 2;
                break;
            }
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            b'~' => concatenations += 1,
            b'%' if after_string => {
                let operand = at + 1 + space_len(&bytes[at + 1..]);
                let operand_end = operand_end(bytes, operand);
                if operand_end > operand {
                    out.push_str(&rest[copied..at]);
                    out.push_str("|percent_format(");
                    out.push_str(&rest[operand..operand_end]);
                    out.push(')');
                    (at, copied) = (operand_end, operand_end);
                    after_string = true;
                    continue;
                }
            }
            _ => {}
        }
        if !byte.is_ascii_whitespace() {
            after_string = false;
        }
        at += if byte < 0x80 { 1 } else { rest[at..].chars().next().map_or(1, char::len_utf8) };
    }
    out.push_str(&rest[copied..at]);
    (concatenations <= CONCATENATIONS_MAX).then_some(at)
}

fn space_len(bytes: &[u8]) -> usize {
    bytes.iter().take_while(|b| b.is_ascii_whitespace()).count()
}

fn string_end(bytes: &[u8], begin: usize) -> usize {
    let mut at = begin + 1;
    while at < bytes.len() && bytes[at] != bytes[begin] {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

fn name_end(bytes: &[u8], begin: usize) -> usize {
    begin + bytes[begin..].iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count()
}

/// End of the bracket that opens at `begin`; `begin` when it does not close.
fn bracket_end(bytes: &[u8], begin: usize) -> usize {
    let (mut at, mut depth) = (begin, 0usize);
    while at < bytes.len() {
        match bytes[at] {
            b'\'' | b'"' => {
                at = string_end(bytes, at);
                continue;
            }
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
        at += 1;
    }
    begin
}

/// End of one operand of `%`: a primary with its attributes, subscripts, calls and filters.
fn operand_end(bytes: &[u8], begin: usize) -> usize {
    let mut at = match bytes.get(begin) {
        Some(b'\'' | b'"') => string_end(bytes, begin),
        Some(b'(' | b'[' | b'{') => bracket_end(bytes, begin),
        Some(b) if b.is_ascii_alphanumeric() || *b == b'_' => name_end(bytes, begin),
        _ => return begin,
    };
    while at > begin {
        let next = match bytes.get(at) {
            Some(b'.' | b'|') => {
                let name = at + 1 + space_len(&bytes[at + 1..]);
                let end = name_end(bytes, name);
                if end == name { at } else { end }
            }
            Some(b'[' | b'(') => bracket_end(bytes, at),
            _ => at,
        };
        if next == at {
            break;
        }
        at = next;
    }
    at
}
