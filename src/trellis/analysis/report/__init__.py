"""`trellis report RUN...`: one HTML file about runs that works offline, from the disk.

Everything is in the file: data, scripts, styles and videos. A content security policy allows only
the scripts and styles whose hashes it names, and no connection. All text from a run folder is
escaped. Reading runs imports no environment, and memory does not grow with the length of a log.
"""

from trellis.analysis.report.write import watch, write_report

__all__ = ["watch", "write_report"]
