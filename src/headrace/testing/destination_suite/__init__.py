"""The conformance suite of destinations: what `headrace.destinations.contract` promises, as tests that any can run.

    class TestMyDestination(DestinationSuite):
        title = "Mine"
        gaps = {
            "in_mode": Gap(GapKind.NOT_BUILT, "it has no modes"),
            "test_a_column_is_renamed": Gap(GapKind.ENGINE_CANNOT, "columns keep their names for ever"),
        }

        @pytest.fixture
        def destination(self, tmp_path):
            return MyDestination(tmp_path)

        def read(self, destination, table):
            return destination.select_all(table)

It is for destinations whose tables can be read back. The fixture and `read` are needed; everything else is overridden,
or said to be a gap:

quarantined   what the quarantine has of a table
in_mode       the same place, with another mode (changelog, soft_delete)
reopened      a new object over the same place, as after a restart, or while the first is still open
interrupted   the next commit fails, before or after it took effect
spark         a fixture: a SparkSession, for destinations that need one

A gap is named by a test; or by one of these words, by `follows`, `applied_lsn`, `copied_parts` or `claim`, for all
tests that need it. It has a kind and a reason, and is a strict xfail: a gap that was closed fails until it is taken
out.

Tests of full size are marked `long`.
"""

from .hooks import Moment, Values
from .suite import AREAS, DestinationSuite

__all__ = ["AREAS", "DestinationSuite", "Moment", "Values"]
