"""usage: compare.py OUTCOME FAILING [--write]

OUTCOME is what the suite's run.py leaves: the profile, the counts and the cases that failed.
FAILING lists the cases that are known to fail, each below the reason for it:

    reason: operators on positions are not built
    both  core/operator/query/geo/test_near.py::test_near[legacy]

The first word is the profile: standalone, replica_set or both. A case is as expected if it
passes and is not listed, or fails and is listed. A listed case that passes is reported too, so
that the list stays true; so is a listed case that the suite does not have.

With --write, FAILING is changed to agree with OUTCOME: cases that pass are removed, cases that
fail are added below "reason: not sorted yet", which this script refuses in a comparison.
"""

import json
import sys
from collections import defaultdict

UNSORTED = "not sorted yet"
BOTH = "both"
PROFILES = ("standalone", "replica_set")


def read(path):
    """The reasons in order, and for each profile a mapping from case to reason."""
    reasons, cases, reason = [], {profile: {} for profile in PROFILES}, None
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            line = line.rstrip("\n")
            if not line or line.startswith("#"):
                continue
            if line.startswith("reason: "):
                reason = line.removeprefix("reason: ")
                reasons.append(reason)
                continue
            profile, _, case = line.partition("  ")
            if profile not in (*PROFILES, BOTH) or not case or reason is None:
                sys.exit(f"{path}:{number}: not a case below a reason: {line}")
            for one in PROFILES if profile == BOTH else (profile,):
                if case in cases[one]:
                    sys.exit(f"{path}:{number}: listed twice: {case}")
                cases[one][case] = reason
    return reasons, cases


def write(path, reasons, cases):
    """Writes the list, the head of the file kept."""
    with open(path, encoding="utf-8") as old:
        head = [line for line in old if line.startswith("#")]
    below = defaultdict(list)
    everywhere = sorted(set().union(*cases.values()))
    for case in everywhere:
        of = {profile: cases[profile].get(case) for profile in PROFILES}
        if len(set(of.values())) == 1:
            below[of[PROFILES[0]]].append(f"{BOTH}  {case}")
            continue
        for profile, reason in of.items():
            if reason:
                below[reason].append(f"{profile}  {case}")
    with open(path, "w", encoding="utf-8") as new:
        new.writelines(head)
        for reason in dict.fromkeys([*reasons, UNSORTED]):
            if below[reason]:
                new.write(f"\nreason: {reason}\n" + "\n".join(below[reason]) + "\n")


def main():
    outcome_path, failing_path, *rest = sys.argv[1:]
    with open(outcome_path, encoding="utf-8") as text:
        outcome = json.load(text)
    profile, failed = outcome["profile"], outcome["failures"]
    reasons, cases = read(failing_path)
    listed = cases[profile]
    if rest == ["--write"]:
        cases[profile] = {case: listed.get(case, UNSORTED) for case in failed}
        write(failing_path, reasons, cases)
        return 0
    ran = sum(area.get(kind, 0) for area in outcome["areas"].values() for kind in ("passed", "failed", "errored"))
    wrong = 0
    for case, message in failed.items():
        if case not in listed:
            wrong += 1
            print(f"{case}\n    fails and is not listed: {message[:400]}")
        elif listed[case] == UNSORTED:
            wrong += 1
            print(f"{case}\n    fails for no stated reason: {message[:400]}")
    for case in sorted(set(listed) - set(failed)):
        wrong += 1
        print(f"{case}\n    passes or does not exist, and is listed: take it off failing.txt")
    by_reason = defaultdict(int)
    for case in failed:
        by_reason[listed.get(case, "not listed")] += 1
    for reason, count in sorted(by_reason.items(), key=lambda pair: -pair[1]):
        print(f"{count:6} fail: {reason}")
    print(f"{profile}: {ran - len(failed)} of {ran} cases pass, {100 * (ran - len(failed)) / max(1, ran):.2f} %")
    print(f"{ran - wrong} passed, {wrong} failed")
    return 1 if wrong or not ran else 0


if __name__ == "__main__":
    sys.exit(main())
