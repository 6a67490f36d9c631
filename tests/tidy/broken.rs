//! Small trees that break each rule.
