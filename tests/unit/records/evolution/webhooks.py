"""Records of real systems, with all their fields: webhooks of GitHub, traces and logs of OpenTelemetry (OTLP in JSON)."""

from __future__ import annotations

from typing import Any

_USER_LINKS = [
    "avatar_url",
    "url",
    "html_url",
    "followers_url",
    "following_url",
    "gists_url",
    "starred_url",
    "subscriptions_url",
    "organizations_url",
    "repos_url",
    "events_url",
    "received_events_url",
]
_REPOSITORY_LINKS = [
    "html_url",
    "url",
    "forks_url",
    "keys_url",
    "collaborators_url",
    "teams_url",
    "hooks_url",
    "issue_events_url",
    "events_url",
    "assignees_url",
    "branches_url",
    "tags_url",
    "blobs_url",
    "git_tags_url",
    "git_refs_url",
    "trees_url",
    "statuses_url",
    "languages_url",
    "stargazers_url",
    "contributors_url",
    "subscribers_url",
    "subscription_url",
    "commits_url",
    "git_commits_url",
    "comments_url",
    "issue_comment_url",
    "contents_url",
    "compare_url",
    "merges_url",
    "archive_url",
    "downloads_url",
    "issues_url",
    "pulls_url",
    "milestones_url",
    "notifications_url",
    "labels_url",
    "releases_url",
    "deployments_url",
    "git_url",
    "ssh_url",
    "clone_url",
    "svn_url",
]
_PULL_REQUEST_LINKS = [
    "url",
    "html_url",
    "diff_url",
    "patch_url",
    "issue_url",
    "commits_url",
    "review_comments_url",
    "comments_url",
    "statuses_url",
]


def user(login: str) -> dict[str, Any]:
    """A user or an organization as owner, sender, author."""
    links = {name: f"https://api.github.com/users/{login}/{name}" for name in _USER_LINKS}
    return {
        "login": login,
        "id": 21031067,
        "node_id": "MDQ6VXNlcjIxMDMxMDY3",
        "gravatar_id": "",
        **links,
        "type": "User",
        "user_view_type": "public",
        "site_admin": False,
    }


def repository() -> dict[str, Any]:
    """A repository, with its owner and its licence."""
    counts = [
        "size",
        "stargazers_count",
        "watchers_count",
        "forks_count",
        "open_issues_count",
        "forks",
        "open_issues",
        "watchers",
    ]
    flags = [
        "private",
        "fork",
        "has_issues",
        "has_projects",
        "has_downloads",
        "has_wiki",
        "has_pages",
        "has_discussions",
        "archived",
        "disabled",
        "allow_forking",
        "is_template",
        "web_commit_signoff_required",
    ]
    return {
        "id": 186853002,
        "node_id": "MDEwOlJlcG9zaXRvcnkxODY4NTMwMDI=",
        "name": "Hello-World",
        "full_name": "Codertocat/Hello-World",
        "owner": user("Codertocat"),
        "description": None,
        **{name: f"https://api.github.com/repos/Codertocat/Hello-World/{name}" for name in _REPOSITORY_LINKS},
        "created_at": "2019-05-15T15:19:25Z",
        "updated_at": "2019-05-15T15:20:41Z",
        "pushed_at": "2019-05-15T15:20:56Z",
        **dict.fromkeys(counts, 2),
        **dict.fromkeys(flags, False),
        "homepage": None,
        "language": "Ruby",
        "mirror_url": None,
        "visibility": "public",
        "default_branch": "master",
        "license": {"key": "mit", "name": "MIT License", "spdx_id": "MIT", "url": "https://x", "node_id": "MDc6"},
        "topics": ["kafka", "iceberg"],
    }


def milestone() -> dict[str, Any]:
    """What a pull request is planned for."""
    return {
        **dict.fromkeys(("url", "html_url", "labels_url", "node_id", "title", "description", "state"), "https://x"),
        "id": 1002604,
        "number": 1,
        "creator": user("octocat"),
        "open_issues": 4,
        "closed_issues": 8,
        "created_at": "2011-04-10T20:09:31Z",
        "updated_at": "2014-03-03T18:58:10Z",
        "due_on": "2012-10-09T23:39:01Z",
    }


def pull_request() -> dict[str, Any]:
    """The repository stands in it twice, people seven times."""
    side = {"label": "Codertocat:changes", "ref": "changes", "sha": "ec26c3e57ca3a959ca5aad62de7213c562f8c821"}
    merge = dict.fromkeys(("allow_squash_merge", "allow_merge_commit", "allow_rebase_merge", "allow_auto_merge"), True)
    whole = {**repository(), **merge, "squash_merge_commit_title": "PR_TITLE", "merge_commit_message": "PR_BODY"}
    label = {"id": 1, "node_id": "x", "url": "https://x", "name": "bug", "default": True, "description": "x"}
    return {
        "id": 279147437,
        "node_id": "MDExOlB1bGxSZXF1ZXN0Mjc5MTQ3NDM3",
        "number": 2,
        "state": "open",
        "locked": False,
        **{name: f"https://github.com/Codertocat/Hello-World/pull/2/{name}" for name in _PULL_REQUEST_LINKS},
        "title": "Update the README",
        "user": user("Codertocat"),
        "body": "A simple change.\n\n- one\n- two",
        "created_at": "2019-05-15T15:20:33Z",
        "updated_at": "2019-05-15T15:20:33Z",
        **dict.fromkeys(("merged_at", "closed_at", "merge_commit_sha")),
        "assignee": user("hubot"),
        "assignees": [user("hubot")],
        "labels": [label],
        "requested_reviewers": [user("other")],
        "requested_teams": [],
        "milestone": milestone(),
        "draft": False,
        "head": {**side, "user": user("Codertocat"), "repo": whole},
        "base": {**side, "user": user("Codertocat"), "repo": whole},
        "_links": {
            name: {"href": "https://x"} for name in ("self", "html", "issue", "comments", "commits", "statuses")
        },
        "author_association": "OWNER",
        "auto_merge": None,
        "active_lock_reason": None,
        "merged": False,
        "mergeable": None,
        "rebaseable": None,
        "mergeable_state": "unknown",
        "merged_by": user("merger"),
        **dict.fromkeys(("comments", "review_comments", "commits", "additions", "deletions", "changed_files"), 1),
        "maintainer_can_modify": False,
    }


def pull_request_event() -> dict[str, Any]:
    """`pull_request`, action `opened`: the repository stands in it three times, people nine times."""
    return {
        "action": "opened",
        "number": 2,
        "pull_request": pull_request(),
        "repository": repository(),
        "organization": user("acme"),
        "sender": user("Codertocat"),
        "installation": {"id": 5, "node_id": "MDIzOk"},
    }


def push_event() -> dict[str, Any]:
    """`push`, with its commits."""
    person = {"name": "Codertocat", "email": "21031067+Codertocat@users.noreply.github.com", "username": "Codertocat"}
    files = {"added": ["a.txt"], "removed": [], "modified": ["README.md"]}
    commit = {
        "id": "0000",
        "tree_id": "1111",
        "distinct": True,
        "message": "x",
        "timestamp": "2019-05-15T15:20:41+02:00",
        "url": "https://x",
        "author": person,
        "committer": person,
        **files,
    }
    return {
        "ref": "refs/heads/main",
        "before": "6113728f",
        "after": "00000000",
        "repository": repository(),
        "pusher": person,
        "sender": user("Codertocat"),
        "organization": user("acme"),
        "created": False,
        "deleted": True,
        "forced": False,
        "base_ref": None,
        "compare": "https://x",
        "commits": [commit],
        "head_commit": commit,
    }


def _any_values() -> list[dict[str, Any]]:
    inner = {"key": "deep", "value": {"arrayValue": {"values": [{"intValue": "7"}, {"stringValue": "x"}]}}}
    return [
        {"key": "http.request.method", "value": {"stringValue": "GET"}},
        {"key": "http.response.status_code", "value": {"intValue": "200"}},
        {"key": "sampled", "value": {"boolValue": True}},
        {"key": "ratio", "value": {"doubleValue": 0.25}},
        {"key": "tags", "value": {"arrayValue": {"values": [{"stringValue": "a"}, {"intValue": "1"}]}}},
        {"key": "user", "value": {"kvlistValue": {"values": [{"key": "id", "value": {"stringValue": "x"}}, inner]}}},
    ]


def _resource() -> dict[str, Any]:
    return {"resource": {"attributes": _any_values(), "droppedAttributesCount": 0}, "schemaUrl": "https://x"}


def otlp_traces() -> dict[str, Any]:
    """`ExportTraceServiceRequest`, with lists and key-value lists as values of attributes, of events and links too."""
    span = {
        "traceId": "5b8efff798038103d269b633813fc60c",
        "spanId": "eee19b7ec3c1b174",
        "traceState": "",
        "parentSpanId": "eee19b7ec3c1b173",
        "name": "GET /orders",
        "kind": 2,
        "flags": 257,
        "startTimeUnixNano": "1544712660000000000",
        "endTimeUnixNano": "1544712661000000000",
        "attributes": _any_values(),
        "droppedAttributesCount": 0,
        "status": {"code": 1, "message": "ok"},
        "events": [{"timeUnixNano": "1544712660500000000", "name": "retry", "attributes": _any_values()}],
        "links": [{"traceId": "5b8e", "spanId": "eee1", "attributes": _any_values()}],
    }
    scope = {"name": "my.library", "version": "1.0.0", "attributes": _any_values()}
    return {"resourceSpans": [{**_resource(), "scopeSpans": [{"scope": scope, "spans": [span]}]}]}


def otlp_logs() -> dict[str, Any]:
    """`ExportLogsServiceRequest` whose body is a key-value list."""
    record = {
        "timeUnixNano": "1544712660300000000",
        "severityNumber": 10,
        "severityText": "Information",
        "traceId": "5b8e",
        "spanId": "eee1",
        "body": {"kvlistValue": {"values": _any_values()}},
        "attributes": _any_values(),
    }
    return {"resourceLogs": [{**_resource(), "scopeLogs": [{"scope": {"name": "x"}, "logRecords": [record]}]}]}
