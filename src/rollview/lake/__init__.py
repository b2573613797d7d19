"""The lake: ordinary Delta tables. Arrow or Spark write the files, deltalake makes the atomic commit."""

from rollview.lake.commit import Commit
from rollview.lake.data_files import FileLayout
from rollview.lake.file import CSN, LakeFile
from rollview.lake.names import folder_name
from rollview.lake.table import LakeTable

__all__ = ["CSN", "Commit", "FileLayout", "LakeFile", "LakeTable", "folder_name"]
