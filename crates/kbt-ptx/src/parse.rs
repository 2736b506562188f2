//! From pieces to a module.

use crate::ast::{Declaration, Function, Guard, Instruction, Module, Problem, PtxError, Statement};
use crate::pieces::{End, Piece, Pieces, is_cut, malformed_literals, operands, short};

/// Reads PTX text; trailing NULs, as some dumps have, are ignored.
///
/// What is not understood becomes a [`Problem`]; only text that does not begin like PTX is an error.
pub fn parse(text: &str) -> Result<Module, PtxError> {
    let text = text.trim_end_matches(['\0', ' ', '\t', '\r', '\n']);
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut pieces = Pieces::new(text).peekable();
    match pieces.peek() {
        None => return Err(PtxError::Empty),
        Some(first) if !first.text.starts_with(".version") => {
            let text = first.text.chars().take(60).collect();
            return Err(PtxError::NotPtx { line: first.line, text });
        }
        Some(_) => {}
    }
    let mut parser = Parser { module: Module::default() };
    while let Some(piece) = pieces.next() {
        match piece.end {
            End::Open if is_function(&piece.text) => parser.function(text, piece, &mut pieces),
            End::Open => parser.block(piece, &mut pieces),
            End::Text if is_cut(&piece.text) => parser.cut(&piece),
            _ => parser.top(piece),
        }
    }
    Ok(parser.module)
}

struct Parser {
    module: Module,
}

impl Parser {
    fn problem(&mut self, line: u32, message: String) {
        self.module.problems.push(Problem { line, message });
    }

    /// The text ends before what began here does.
    fn cut(&mut self, piece: &Piece) {
        self.problem(piece.line, format!("the text ends inside `{}`", short(&piece.text)));
    }

    /// A module-level statement without a body.
    fn top(&mut self, piece: Piece) {
        let Some(declaration) = declaration(&piece) else {
            if !piece.text.is_empty() || piece.end == End::Close {
                self.problem(piece.line, format!("`{}` outside a function", piece.text));
            }
            return;
        };
        match declaration.name.as_str() {
            ".version" => self.module.version = declaration.text,
            ".target" => self.module.target = declaration.text,
            ".address_size" => match declaration.text.parse() {
                Ok(size) => self.module.address_size = Some(size),
                Err(_) => self.problem(piece.line, format!("`{}` is no address size", declaration.text)),
            },
            _ => self.module.declarations.push(declaration),
        }
    }

    /// A module-level block that is no function: `.section .debug_str { ... }`. Its content is skipped.
    fn block(&mut self, piece: Piece, pieces: &mut impl Iterator<Item = Piece>) {
        let mut depth = 1;
        for inner in pieces {
            match inner.end {
                End::Open => depth += 1,
                End::Close => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
        if depth > 0 {
            self.problem(piece.line, format!("`{}` is never closed", piece.text));
        }
        self.top(piece);
    }

    fn function(&mut self, whole: &str, piece: Piece, pieces: &mut impl Iterator<Item = Piece>) {
        let (header, directives) = split_header(&piece, whole);
        let mut function = Function {
            name: name(&header).unwrap_or_default().to_owned(),
            is_entry: header.split(' ').any(|w| w == ".entry"),
            line: piece.line,
            last_line: piece.line,
            header,
            directives,
            span: piece.span.start..whole.len(),
            body_start: piece.mark,
            body: Vec::new(),
        };
        if function.name.is_empty() {
            self.problem(piece.line, format!("no function name in `{}`", piece.text));
        }
        let mut depth = 1;
        for piece in pieces {
            let (end, mark) = (piece.end, piece.mark);
            function.last_line = piece.last_line;
            self.statement(piece, &mut function.body);
            match end {
                End::Open => {
                    depth += 1;
                    function.body.push(Statement::Open);
                }
                End::Close => {
                    depth -= 1;
                    if depth == 0 {
                        function.span.end = mark + 1;
                        break;
                    }
                    function.body.push(Statement::Close);
                }
                _ => {}
            }
        }
        if depth > 0 {
            let (name, last) = (&function.name, function.last_line);
            self.problem(function.line, format!("the text ends inside `{name}`, at line {last}"));
        }
        self.module.functions.push(function);
    }

    fn statement(&mut self, piece: Piece, body: &mut Vec<Statement>) {
        if piece.text.is_empty() {
            return;
        }
        if piece.end == End::Colon {
            body.push(Statement::Label { name: piece.text, line: piece.line });
        } else if piece.end == End::Text {
            self.cut(&piece);
        } else if let Some(declaration) = declaration(&piece) {
            body.push(Statement::Declaration(declaration));
        } else if let Some(instruction) = instruction(&piece).filter(|_| piece.end == End::Semicolon) {
            for literal in instruction.operands.iter().flat_map(|o| malformed_literals(o)) {
                let message = format!(
                    "`{literal}` in `{}` is no literal: an f32 is 0f and 8 hexadecimal digits, an f64 0d and 16",
                    instruction.opcode
                );
                self.problem(piece.line, message);
            }
            body.push(Statement::Instruction(instruction));
        } else {
            let text = short(&piece.text);
            self.problem(piece.line, format!("`{text}` is no instruction; expected `opcode operands;`"));
        }
    }
}

/// Linkage words, then `.entry` or `.func`.
fn is_function(text: &str) -> bool {
    text.split([' ', '(']).any(|w| w == ".entry" || w == ".func")
}

/// The word before the parameter list, behind `.entry`, or behind `.func` and its return value.
fn name(header: &str) -> Option<&str> {
    let after = header.split_once(".entry").or_else(|| header.split_once(".func"))?.1.trim_start();
    let after = match after.strip_prefix('(') {
        Some(value) => value.split_once(')')?.1.trim_start(),
        None => after,
    };
    let end = after.find(|c: char| c == '(' || c.is_whitespace()).unwrap_or(after.len());
    Some(&after[..end]).filter(|n| !n.is_empty())
}

/// Directives that may stand between a function's parameters and its body.
const PERFORMANCE: [&str; 13] = [
    ".maxnreg",
    ".maxntid",
    ".reqntid",
    ".minnctapersm",
    ".maxnctapersm",
    ".noreturn",
    ".pragma",
    ".reqnctapercluster",
    ".explicitcluster",
    ".maxclusterrank",
    ".blocksareclusters",
    ".unified",
    ".abi_preserve",
];

fn split_header(piece: &Piece, whole: &str) -> (String, Vec<Declaration>) {
    let source = &whole[piece.span.clone()];
    let found = |name: &str, text: &str| -> Vec<usize> {
        let at = text.match_indices(name).map(|(i, _)| i);
        at.filter(|i| !text[i + name.len()..].starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_'))
            .collect()
    };
    let mut starts: Vec<(usize, &str)> = PERFORMANCE
        .iter()
        .flat_map(|name| found(name, source).into_iter().map(move |i| (i, *name)))
        .collect();
    starts.sort_unstable();
    let directives = starts.iter().enumerate().map(|(n, (start, name))| {
        let end = starts.get(n + 1).map_or(source.len(), |(next, _)| *next);
        let text = source[*start + name.len()..end].split("//").next().unwrap_or_default();
        let line = piece.line + u32::try_from(source[..*start].matches('\n').count()).unwrap_or(0);
        let trimmed = start + name.len() + text.trim_end().len();
        Declaration {
            name: (*name).to_owned(),
            text: text.split_whitespace().collect::<Vec<_>>().join(" "),
            line,
            span: piece.span.start + start..piece.span.start + trimmed,
        }
    });
    let cut = PERFORMANCE.iter().filter_map(|name| found(name, &piece.text).first().copied()).min();
    (piece.text[..cut.unwrap_or(piece.text.len())].trim_end().to_owned(), directives.collect())
}

fn declaration(piece: &Piece) -> Option<Declaration> {
    let starts_so = piece.text.starts_with('.');
    let (name, text) = piece.text.split_once(' ').unwrap_or((&piece.text, ""));
    starts_so.then(|| Declaration {
        name: name.to_owned(),
        text: text.to_owned(),
        line: piece.line,
        span: piece.span.clone(),
    })
}

fn instruction(piece: &Piece) -> Option<Instruction> {
    let mut text = piece.text.as_str();
    let mut guard = None;
    if let Some(rest) = text.strip_prefix('@') {
        let (register, after) = rest.split_once(' ')?;
        let (negated, register) = register.strip_prefix('!').map_or((false, register), |r| (true, r));
        guard = Some(Guard { negated, register: register.to_owned() });
        text = after;
    }
    let end = text.find([' ', '\t', '{', '(']).unwrap_or(text.len());
    let (opcode, rest) = text.split_at(end);
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':');
    if !opcode.starts_with(|c: char| c.is_ascii_lowercase()) || !opcode.bytes().all(legal) {
        return None;
    }
    Some(Instruction {
        guard,
        opcode: opcode.to_owned(),
        operands: operands(rest),
        line: piece.line,
        span: piece.span.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"//
// Generated by hand
.version 9.0
.target sm_90a
.address_size 64

.global .align 4 .b8 table[4] = {1, 2, 3, 4};
.func (.param .b32 ret) helper(
	.param .b32 a
)
{
	.reg .b32 %r<3>; // registers
	ld.param.b32 	%r1, [a];
	st.param.b32 	[ret], %r1;
	ret;
}
	// .globl	kernel
.visible .entry kernel(
	.param .u64 p
)
.maxntid 256, 1, 1 // threads
.minnctapersm 1
{
	.reg .pred %p<2>;
	.loc 1 5 3
	/* a comment; with { marks } */
	setmaxnreg.inc.sync.aligned.u32 232;
$L__BB0_1:
	mov.b64 {%r1, %r2}, %rd1;
	@!%p1 bra 	$L__BB0_1;
	{
	.pragma "nounroll";
	call.uni (ret), helper, (%r1, %r2);
	} // scope
	ld.shared::cta.b32 %r3, [table+4];
	ret;
}
.section	.debug_str
{
info_string0:
.b8 95,95
}
"#;

    fn module(text: &str) -> Module {
        parse(text).unwrap()
    }

    #[test]
    fn a_module_is_read_whole() {
        let m = module(TEXT);
        assert_eq!(m.problems, []);
        assert_eq!((m.version.as_str(), m.target.as_str(), m.address_size), ("9.0", "sm_90a", Some(64)));
        let names: Vec<_> = m.functions.iter().map(|f| (f.name.as_str(), f.is_entry, f.line)).collect();
        assert_eq!(names, [("helper", false, 8), ("kernel", true, 18)]);
        let kernel = m.function("kernel").unwrap();
        let directives: Vec<_> =
            kernel.directives.iter().map(|d| (d.name.as_str(), d.text.as_str(), d.line)).collect();
        assert_eq!(directives, [(".maxntid", "256, 1, 1", 21), (".minnctapersm", "1", 22)]);
        let shown: Vec<_> = kernel.instructions().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "setmaxnreg.inc.sync.aligned.u32 232;",
                "mov.b64 {%r1, %r2}, %rd1;",
                "@!%p1 bra $L__BB0_1;",
                "call.uni (ret), helper, (%r1, %r2);",
                "ld.shared::cta.b32 %r3, [table+4];",
                "ret;",
            ]
        );
        let lines: Vec<_> = kernel.instructions().map(|i| i.line).collect();
        assert_eq!(lines, [27, 29, 30, 33, 35, 36]);
        for i in kernel.instructions() {
            let source = &TEXT[i.span.clone()];
            assert!(source.contains(&i.opcode) && !source.contains(';'), "{source}");
        }
        assert!(
            TEXT[kernel.span.clone()].starts_with(".visible") && TEXT[kernel.span.clone()].ends_with('}')
        );
    }

    #[test]
    fn what_is_no_ptx_is_refused_and_what_is_odd_becomes_a_problem() {
        assert_eq!(parse(" \n\0\0"), Err(PtxError::Empty));
        assert!(parse("int main() {}").unwrap_err().to_string().contains(".version"));
        let m = module(".version 9.0\n.target sm_90\n.entry k()\n{\n Q8 wrong;\n ret;\n");
        let problems: Vec<_> = m.problems.iter().map(ToString::to_string).collect();
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].contains("line 5") && problems[1].contains("ends inside"), "{problems:?}");
        assert_eq!(m.problems_in(&m.functions[0]).count(), 2);
        assert_eq!(m.functions[0].instructions().count(), 1);
        assert_eq!(module(&(TEXT.to_owned() + "\0\0\0")).functions.len(), 2, "NUL tails are ignored");
    }

    #[test]
    fn a_prefix_that_ends_inside_anything_says_so() {
        let whole = module(TEXT);
        let spans: Vec<_> = whole.functions.iter().map(|f| f.span.clone()).collect();
        // From the first function on: what stands before may end anywhere and be PTX.
        for end in spans[0].start + 1..TEXT.len() {
            let m = module(&TEXT[..end]);
            for (i, span) in spans.iter().enumerate().filter(|(_, s)| s.start + 1 < end && end < s.end) {
                // A cut within the header leaves no function; within the body it is the function's own problem.
                let cut = |p: &Problem| p.message.contains("the text ends inside");
                match m.functions.get(i) {
                    Some(f) => assert!(m.problems_in(f).any(cut), "{end} {span:?}"),
                    None => assert!(m.problems.iter().any(cut), "{end} {span:?}: {:?}", m.problems),
                }
            }
            for f in m.functions.iter().zip(&spans).filter(|(_, s)| s.end <= end).map(|(f, _)| f) {
                assert_eq!(m.problems_in(f).count(), 0, "{end}");
            }
        }
        for end in (0..spans[0].start).filter(|i| TEXT.is_char_boundary(*i)) {
            let _ = parse(&TEXT[..end]);
        }
    }

    #[test]
    fn a_literal_of_the_wrong_length_is_a_problem_and_the_instruction_stays() {
        let text = ".version 9.0\n.target sm_90\n.entry k()\n{\nmul.f32 %f1, %f2, 0f3F8;\n\
                    mov.f64 %fd1, 0d3FF00000;\nmov.b64 %rd1, {0f3F800000, 0fzz};\nadd.f32 %f1, %f2, 0F3F800000;\nret;\n}\n";
        let m = module(text);
        let problems: Vec<_> = m.problems_in(&m.functions[0]).map(ToString::to_string).collect();
        assert_eq!(problems.len(), 3, "{problems:?}");
        for (problem, (line, literal)) in problems.iter().zip([(5, "0f3F8"), (6, "0d3FF00000"), (7, "0fzz")])
        {
            assert!(problem.starts_with(&format!("line {line}: `{literal}` in `m")), "{problem}");
            assert!(problem.contains("8 hexadecimal digits"), "{problem}");
        }
        assert_eq!(m.functions[0].instructions().count(), 5);
    }
}
