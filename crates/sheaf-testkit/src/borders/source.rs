//! Reads the imports of each source file: tokens, `use` trees and paths in code.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

/// The names that one file takes from another.
#[derive(Default)]
pub struct Import {
    names: BTreeSet<String>,
}

impl Import {
    /// The names, joined.
    pub fn names(&self) -> String {
        let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
        names.join(", ")
    }
}

/// A module path inside the crate; empty for the root.
type ModulePath = Vec<String>;

/// The modules of a crate that have a file.
pub struct Crate {
    modules: BTreeMap<ModulePath, Module>,
}

struct Module {
    file: String,
    /// What the file names by `use`: alias, path, and whether others may use it.
    uses: Vec<Use>,
    /// Paths in code, as written.
    paths: Vec<Vec<String>>,
}

struct Use {
    alias: String,
    path: Vec<String>,
    exported: bool,
}

impl Crate {
    /// Reads each `.rs` file below `src`, except modules under `#[cfg(test)]`.
    pub fn read(src: &Path) -> io::Result<Crate> {
        let mut found = Vec::new();
        collect(src, String::new(), &mut found)?;
        let mut modules = BTreeMap::new();
        let mut excluded: Vec<ModulePath> = Vec::new();
        for (file, text) in found {
            let path = module_path(&file);
            let tokens = without_tests(tokens(&text), &path, &mut excluded);
            let (uses, paths) = read_paths(&tokens);
            modules.insert(path, Module { file, uses, paths });
        }
        modules.retain(|path, _| !excluded.iter().any(|test| path.starts_with(test)));
        Ok(Crate { modules })
    }

    /// The files, relative to `src`.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.modules.values().map(|module| module.file.as_str())
    }

    /// Each pair of files of which the first imports the second.
    pub fn imports(&self) -> BTreeMap<(String, String), Import> {
        let mut imports: BTreeMap<(String, String), Import> = BTreeMap::new();
        for (path, module) in &self.modules {
            let mut add = |to: &ModulePath, name: &str| {
                let to = &self.modules[to].file;
                if *to != module.file {
                    let key = (module.file.clone(), to.clone());
                    imports.entry(key).or_default().names.insert(name.into());
                }
            };
            for named in &module.uses {
                let Some((to, item)) = self.resolve(path, &named.path, 0) else {
                    continue;
                };
                // An imported module counts by the paths that go through it; a name that a
                // parent re-exports counts for the files that use it.
                let handed_on = named.exported && to.starts_with(path);
                if let (Some(item), false) = (item, handed_on) {
                    add(&to, &item);
                }
            }
            for written in &module.paths {
                if let Some((to, Some(item))) = self.resolve(path, written, 0) {
                    add(&to, &item);
                }
            }
        }
        imports
    }

    /// The module that defines what `path`, written in module `at`, names, and the item's name;
    /// no name when the path is a module itself, `None` when it leaves the crate.
    fn resolve(
        &self,
        at: &ModulePath,
        path: &[String],
        depth: usize,
    ) -> Option<(ModulePath, Option<String>)> {
        if depth > 16 {
            return None;
        }
        let mut rest = path;
        let mut module = match path.first()?.as_str() {
            "crate" => {
                rest = &path[1..];
                Vec::new()
            }
            "self" => {
                rest = &path[1..];
                at.clone()
            }
            "super" => {
                let mut module = at.clone();
                while rest.first().is_some_and(|part| part == "super") {
                    module.pop();
                    rest = &rest[1..];
                }
                module
            }
            first => {
                let is_child = self.modules.contains_key(&child(at, first));
                let is_named = self.modules[at].uses.iter().any(|used| used.alias == first);
                if !is_child && !is_named {
                    return None;
                }
                at.clone()
            }
        };
        while let Some((part, after)) = rest.split_first() {
            let below = child(&module, part);
            if self.modules.contains_key(&below) {
                module = below;
                rest = after;
                continue;
            }
            let here = self.modules.get(&module)?;
            // A name that refers to itself (`use a; a::b`) must not be followed indefinitely.
            if let Some(used) = here
                .uses
                .iter()
                .find(|used| used.alias == *part && used.path != path)
            {
                let mut onward = used.path.clone();
                onward.extend_from_slice(after);
                return self.resolve(&module, &onward, depth + 1);
            }
            return Some((module, Some(part.clone())));
        }
        Some((module, None))
    }
}

fn child(module: &ModulePath, name: &str) -> ModulePath {
    let mut path = module.clone();
    path.push(name.into());
    path
}

fn collect(folder: &Path, prefix: String, found: &mut Vec<(String, String)>) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let relative = format!("{prefix}{name}");
        if entry.file_type()?.is_dir() {
            collect(&entry.path(), relative + "/", found)?;
        } else if name.ends_with(".rs") {
            found.push((relative, std::fs::read_to_string(entry.path())?));
        }
    }
    Ok(())
}

fn module_path(file: &str) -> ModulePath {
    let mut path: ModulePath = file
        .trim_end_matches(".rs")
        .split('/')
        .map(String::from)
        .collect();
    let last = path.last().map(String::as_str);
    if last == Some("mod") || (path.len() == 1 && matches!(last, Some("lib" | "main"))) {
        path.pop();
    }
    path
}

/// Identifiers, `::`, and single punctuation; comments, literals and white space are left out.
fn tokens(text: &str) -> Vec<String> {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let left = &text[at..];
        let skipped = skip_comment(left).or_else(|| skip_literal(left));
        if let Some(len) = skipped {
            at += len;
            continue;
        }
        let len = left
            .bytes()
            .take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte >= 0x80)
            .count();
        if len > 0 {
            out.push(left[..len].into());
            at += len;
        } else if left.starts_with("::") {
            out.push("::".into());
            at += 2;
        } else {
            if !bytes[at].is_ascii_whitespace() {
                out.push(char::from(bytes[at]).to_string());
            }
            at += 1;
        }
    }
    out
}

fn skip_comment(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if !text.starts_with("/*") {
        return None;
    }
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        if text.as_bytes()[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if text.as_bytes()[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return Some(at);
            }
        } else {
            at += 1;
        }
    }
    Some(text.len())
}

/// The length of a string, raw string, byte string or character at the start of `text`.
fn skip_literal(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let prefix = bytes
        .iter()
        .take_while(|byte| b"bcr".contains(byte))
        .count();
    if prefix <= 2 {
        let raw = prefix > 0 && bytes[prefix - 1] == b'r';
        let hashes = bytes[prefix..]
            .iter()
            .take_while(|byte| **byte == b'#')
            .count();
        if raw && bytes.get(prefix + hashes) == Some(&b'"') {
            let end = format!("\"{}", "#".repeat(hashes));
            let from = prefix + hashes + 1;
            return Some(
                text[from..]
                    .find(&end)
                    .map_or(text.len(), |at| from + at + end.len()),
            );
        }
        if !raw && bytes.get(prefix) == Some(&b'"') {
            let mut at = prefix + 1;
            while at < bytes.len() && bytes[at] != b'"' {
                at += if bytes[at] == b'\\' { 2 } else { 1 };
            }
            return Some((at + 1).min(text.len()));
        }
    }
    let quote = usize::from(bytes.first() == Some(&b'b'));
    if bytes.get(quote) != Some(&b'\'') {
        return None;
    }
    // A character ends with a quote; a lifetime does not.
    let mut after = text[quote + 1..].char_indices();
    let (_, first) = after.next()?;
    if first == '\\' {
        let from = quote + 3;
        return text.get(from..)?.find('\'').map(|at| from + at + 1);
    }
    let (end, second) = after.next()?;
    (second == '\'').then_some(quote + 1 + end + 1)
}

/// Removes code under `#[cfg(test)]`; files of such modules go to `excluded`.
fn without_tests(
    tokens: Vec<String>,
    module: &ModulePath,
    excluded: &mut Vec<ModulePath>,
) -> Vec<String> {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut out = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let marked = MARK
            .iter()
            .enumerate()
            .all(|(offset, part)| tokens.get(at + offset).is_some_and(|token| token == part));
        if !marked {
            out.push(tokens[at].clone());
            at += 1;
            continue;
        }
        at += MARK.len();
        let end = item_end(&tokens, at);
        let item = &tokens[at..end];
        if let Some(named) = item.iter().position(|token| token == "mod")
            && item.last().is_some_and(|token| token == ";")
        {
            excluded.push(child(module, &item[named + 1]));
        }
        at = end;
    }
    out
}

/// The end of the item that begins at `at`: after its `;` or its closing brace.
fn item_end(tokens: &[String], at: usize) -> usize {
    let mut depth = 0;
    for (offset, token) in tokens[at..].iter().enumerate() {
        match token.as_str() {
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                // `use a::{b};` ends at its semicolon.
                let more = tokens.get(at + offset + 1).is_some_and(|next| next == ";");
                if depth == 0 && !more {
                    return at + offset + 1;
                }
            }
            ";" if depth == 0 => return at + offset + 1,
            _ => {}
        }
    }
    tokens.len()
}

fn is_name(token: &str) -> bool {
    token
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80)
}

fn read_paths(tokens: &[String]) -> (Vec<Use>, Vec<Vec<String>>) {
    let mut uses = Vec::new();
    let mut paths = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if tokens[at] == "use" {
            let exported = at > 0 && (tokens[at - 1] == "pub" || tokens[at - 1] == ")");
            let mut next = at + 1;
            use_tree(tokens, &mut next, &[], exported, &mut uses);
            at = next;
        } else if is_name(&tokens[at]) && tokens.get(at + 1).is_some_and(|token| token == "::") {
            let mut path = vec![tokens[at].clone()];
            while tokens.get(at + 1).is_some_and(|token| token == "::")
                && tokens.get(at + 2).is_some_and(|token| is_name(token))
            {
                path.push(tokens[at + 2].clone());
                at += 2;
            }
            if path.len() > 1 {
                paths.push(path);
            }
            at += 1;
        } else {
            at += 1;
        }
    }
    (uses, paths)
}

/// Reads one `use` tree; `at` ends after it.
fn use_tree(
    tokens: &[String],
    at: &mut usize,
    prefix: &[String],
    exported: bool,
    out: &mut Vec<Use>,
) {
    let mut path = prefix.to_vec();
    while let Some(token) = tokens.get(*at) {
        *at += 1;
        match token.as_str() {
            "::" => {}
            "{" => {
                while tokens.get(*at).is_some_and(|token| token != "}") {
                    use_tree(tokens, at, &path, exported, out);
                    if tokens.get(*at).is_some_and(|token| token == ",") {
                        *at += 1;
                    }
                }
                *at += 1;
                return;
            }
            "as" => {
                let alias = tokens.get(*at).cloned().unwrap_or_default();
                *at += 1;
                out.push(Use {
                    alias,
                    path,
                    exported,
                });
                return;
            }
            "self" if !path.is_empty() => {}
            name if is_name(name) || name == "*" => path.push(name.into()),
            _ => {
                *at -= 1;
                break;
            }
        }
    }
    if let Some(alias) = path.last().cloned() {
        out.push(Use {
            alias,
            path,
            exported,
        });
    }
}
