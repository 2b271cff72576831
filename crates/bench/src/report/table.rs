//! A table of a page: names on the left, figures on the right, scrolled sideways where it is wider than the screen.

use super::html::escaped;

/// A table under way: made with its names' columns, then [`Table::figures`] or [`Table::pairs`] once, then rows.
#[derive(Debug)]
pub(super) struct Table {
    text: String,
    names: Vec<String>,
    heads: usize,
}

impl Table {
    /// `names` are the columns on the left; the first `heads` of them name a row.
    pub(super) fn new(title: &str, names: &[String], heads: usize) -> Self {
        let title = escaped(title);
        let text = format!(
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{title}\">\n<table>\n\
             <caption>{title}</caption>\n<thead>\n"
        );
        Self { text, names: names.to_vec(), heads }
    }

    /// A column for each figure; a name breaks where it has an underscore.
    pub(super) fn figures(&mut self, columns: &[String]) {
        self.text.push_str("<tr>");
        self.names("");
        for column in columns {
            self.text.push_str(&format!("<th scope=\"col\">{}</th>", escaped(&column.replace('_', " "))));
        }
        self.text.push_str("</tr>\n</thead>\n<tbody>\n");
    }

    /// Two columns for each name.
    pub(super) fn pairs(&mut self, columns: &[String], (first, second): (&str, &str)) {
        self.text.push_str("<tr>");
        self.names(" rowspan=\"2\"");
        for column in columns {
            self.text.push_str(&format!("<th scope=\"colgroup\" colspan=\"2\">{}</th>", escaped(column)));
        }
        self.text.push_str("</tr>\n<tr>");
        let pair = format!("<th scope=\"col\">{}</th><th scope=\"col\">{}</th>", escaped(first), escaped(second));
        self.text.push_str(&pair.repeat(columns.len()));
        self.text.push_str("</tr>\n</thead>\n<tbody>\n");
    }

    fn names(&mut self, span: &str) {
        for name in &self.names {
            self.text.push_str(&format!("<th scope=\"col\" class=\"name\"{span}>{}</th>", escaped(name)));
        }
    }

    /// One row.
    pub(super) fn row(&mut self, names: &[String], figures: impl Iterator<Item = String>) {
        self.text.push_str("<tr>");
        for (number, name) in names.iter().enumerate() {
            let name = escaped(name);
            self.text.push_str(&match number < self.heads {
                true => format!("<th scope=\"row\">{name}</th>"),
                false => format!("<td class=\"name\">{name}</td>"),
            });
        }
        figures.for_each(|figure| self.text.push_str(&format!("<td>{}</td>", escaped(&figure))));
        self.text.push_str("</tr>\n");
    }

    /// The whole table.
    pub(super) fn end(self) -> String {
        self.text + "</tbody>\n</table>\n</div>\n"
    }
}
