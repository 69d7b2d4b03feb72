"""docs/dialects/tir.md, made from the tables by `python -m muster.dialects.tir.document`.

Leans on fields, words and refusals. A test holds the page against what this prints.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Final

from muster.dialects.tir import words
from muster.dialects.tir.fields import ANSWERS, REQUESTS, Section
from muster.dialects.tir.refusals import OTHER_PRODUCTS, STATUS
from muster.errors import CALL_ERRORS

HEAD: Final = f"""# TIR

<!-- Made by `python -m muster.dialects.tir.document`; do not edit. -->

Muster speaks E2E Networks' TIR wire for training clusters under `{words.BASE}/`, and `/distributed_jobs_v2/...` also
without that prefix. Hand-written HTTP and the document's own curl work unchanged; so does the SDK `e2enetworks`
1.4.9, which speaks the older paths and creates no clusters:

    export E2E_TIR_API_HOST=http://127.0.0.1:8787/myaccount/   # with the slash, before the import
    export E2E_TIR_API_KEY=... E2E_TIR_ACCESS_TOKEN=...        # the same Muster key twice
    export E2E_TIR_TEAM_ID=... E2E_TIR_PROJECT_ID=... E2E_TIR_LOCATION=Delhi

A key may come as `Authorization: Bearer`, as `?apikey=`, or as both; two different ones are a 401. Every path ends in
a slash and may leave it out. `project_id` and `location` are required wherever they decide something; the old
`/teams/{{t}}/projects/{{p}}/...` and `/projects/{{p}}/...` are answered beside the new paths. An account is what a
team was. `location` is any region of the catalogue; it decides where something is made and what it costs, and lists
tell everything of the project with the location of each. SSH keys, groups and addresses belong to the
key's own project.

## Spoken

| | |
| --- | --- |
| `distributed_jobs_v2/cluster/` | create, list with page_no and per_page, detail, nine actions, delete |
| `distributed_jobs_v2/cluster/plans/?variant=` | slurm or nemo; SKUs with the location's prices |
| `distributed_jobs_v2/deployment_images/{{slurm or nemo}}/?job_type=` | images with versions |
| `ssh_keys/` | add, list, sync, delete |
| `security_groups/` | create, list, detail, PUT rules, delete (on the group or, as theirs, on its rules) |
| `reserved_ips/` | reserve, list, detail, release |
| `distributed_jobs/sfs/`, `pfs/` | create, list, detail, grow, delete, `notebooks/` (the clusters that mount it) |
| `distributed_jobs/cluster/` | list and detail, as the SDK asks |
| `distributed_jobs/jobs/` | PyTorch jobs over Slurm: submit, list, describe, terminate, delete, pods, events, logs |
| `auth-token/`, `users/iam-accounts/`, `teams/`, `projects/`, `dashboard/service-count/` | as the SDK asks |
| `gpu_service/sku/`, `gpu_service/image/`, `plans-and-pricing/list/` | the same SKUs and images |

The actions `restart_workers`, `restart_cluster` and `update_image` boot nodes anew in place: what runs on them is cut
short. The others change a cluster while it runs. A create that is repeated with the same body within ten minutes gets
the first answer again.
"""

UNKNOWN: Final = """## Unknown

Not in the documents we have, and so decided here: what `data` of a create, list or detail holds; the words of
`status` beyond Running; the values of `variant` and of the framework (slurm, nemo); `ip_type` (not looked at); the
items of pfs_mount_list and dataset_mount_list (as SFS); what happens without credit (400 with `errors.credits`);
whether a list has a total (it has none).
"""


def page() -> str:
    parts = [HEAD, *_sections("Requests", REQUESTS), *_sections("Answers", ANSWERS), *_tables(), UNKNOWN]
    return "\n".join(parts)


def _sections(title: str, sections: Sequence[Section]) -> Iterator[str]:
    yield f"## {title}\n"
    for section in sections:
        yield f"### {section.title}\n"
        yield _table(("field", "", "meaning"), [(f"`{name}`", kind, said) for name, kind, said in section.fields])


def _tables() -> Iterator[str]:
    yield "## Words\n"
    yield _table(("cluster phase", "status"), list(words.STATUS.items()))
    yield _table(("node phase", "status"), list(words.NODE_STATUS.items()))
    yield _table(("job state", "status"), list(words.JOB_STATUS.items()))
    yield _table(("volume phase", "status"), list(words.VOLUME_STATUS.items()))
    yield "## Refused\n"
    yield "`{code, errors, message}`: `errors` names the field, or `detail`; a 401 is `{code, message}` alone.\n"
    yield _table(("code", "HTTP"), [(error.code, str(STATUS[error.code])) for error in CALL_ERRORS])
    products = ", ".join(sorted(set(OTHER_PRODUCTS.values())))
    yield f"Other products answer 404 with a sentence: {products}. Teams and projects are not deleted.\n"


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
