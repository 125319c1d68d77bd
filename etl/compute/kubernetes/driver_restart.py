"""Whether the Job of a driver starts it again after a failure: then the next driver needs the cluster."""

import os
from typing import Any

from etl.compute.kubernetes.api import Api, is_deleted
from etl.compute.kubernetes.resources import Resource


def is_started_again(api: Api, job_name: str) -> bool:
    """Return whether a Job starts another driver when the one in this pod fails."""
    job = api.get("Job", job_name)
    if job is None or is_deleted(job) or job["spec"].get("suspend") or has_ended(job):
        return False
    if _is_ignored(job, api):
        return True
    failed = int(job.get("status", {}).get("failed", 0)) + 1
    return failed <= int(job["spec"].get("backoffLimit", 6))


def has_ended(job: Resource) -> bool:
    """Return whether a Job has ended, or is going to fail."""
    ends = ("Complete", "Failed", "FailureTarget", "SuccessCriteriaMet")
    return any(
        condition["type"] in ends and condition["status"] == "True"
        for condition in job.get("status", {}).get("conditions", [])
    )


def _is_ignored(job: Resource, api: Api) -> bool:
    """Return whether the end of this pod does not count, because its node is drained, for example."""
    rules = job["spec"].get("podFailurePolicy", {}).get("rules", [])
    ignored = [
        condition["type"]
        for rule in rules
        if rule["action"] == "Ignore"
        for condition in rule.get("onPodConditions", [])
    ]
    pods = api.list("Pod", {"job-name": job["metadata"]["name"]})
    conditions: list[dict[str, Any]] = [
        condition
        for pod in pods
        if pod["metadata"]["name"] == os.environ.get("HOSTNAME")
        for condition in pod.get("status", {}).get("conditions", [])
    ]
    return any(each["type"] in ignored and each["status"] == "True" for each in conditions)
