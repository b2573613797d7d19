"""The lake: ordinary Delta tables. Arrow or Spark write the files, deltalake makes the atomic commit."""

from rollview.lake.data_files import CSN, FileLayout, LakeFile
from rollview.lake.log import Commit
from rollview.lake.table import LakeTable, folder_name

__all__ = ["CSN", "Commit", "FileLayout", "LakeFile", "LakeTable", "folder_name"]
