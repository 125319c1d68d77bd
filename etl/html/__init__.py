"""HTML of reports and documents: what a notebook shows of an object, and parts of pages. All is escaped."""
