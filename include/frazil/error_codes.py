"""The kinds of problem that a user can meet, from which docs/messages.md is made. A released number is never given again."""

from frazil.errors import ErrorCode

PIPELINE_FILE_INVALID = ErrorCode(
    101,
    "A pipeline file can't be used",
    "A pipeline file is missing, is not YAML, or has keys or values that don't fit.",
    "The message names each wrong key by its path. A misspelled key is an error, so that no setting is ignored.",
    "Correct the keys that are named, then run `frazil validate FILE`. Other pipelines go on meanwhile.",
)
SETTINGS_FILE_INVALID = ErrorCode(
    102,
    "The settings file can't be used",
    "`include/settings.yaml` is missing, is not YAML, or has keys or values that don't fit.",
    "Often a reference such as `${env:NAME}` names a variable that is not set where the command runs.",
    "Correct the keys that are named, or set the variable, then run `frazil validate`.",
)
CAPTURE_FILE_INVALID = ErrorCode(
    103,
    "A capture file can't be used",
    "A capture file is missing, is not YAML, or has keys or values that don't fit.",
    "The message names each wrong key by its path.",
    "Correct the keys that are named, then run `frazil validate FILE`.",
)
NAME_UNKNOWN = ErrorCode(
    104,
    "No such name",
    "The command names a pipeline, capture, table, topic, report, dead letter or part of the stack that does not exist.",
    "It is misspelled, was removed, or belongs to another project or settings file.",
    "Choose one of the names in the message, or look them up with `frazil status`.",
)
BAD_SETTING = ErrorCode(
    105,
    "A setting is missing or can't be used",
    "An entry of the settings, a property or an environment variable is missing, or its value can't be used.",
    "The pipeline file names an entry that the settings lack, or a value does not have the expected form.",
    "Add or correct the entry that the message names.",
)
BAD_ARGUMENT = ErrorCode(
    106,
    "An argument is wrong",
    "An argument, a field of a form, a query or a list of offsets has the wrong form, or contradicts another one.",
    "An offset may be missing for a partition, a time may lack its time zone, or two options exclude each other.",
    "Give the argument as the message shows it. Nothing was changed.",
)
BAD_FILE = ErrorCode(
    107,
    "A file can't be read, written or used",
    "A file that a command reads or writes can't be opened, or does not hold what the command expects.",
    "Its name, its permissions or its contents are wrong.",
    "Correct what the message names, and run the command again.",
)
PROGRAM_MISSING = ErrorCode(
    108,
    "A program, package or jar is missing",
    "Something that this command needs is not installed on this machine, or could not be fetched or built.",
    "Parts of Frazil are optional. Extras of the package bring the libraries of formats, catalogs and engines (docs/install.md)."
    " Only some commands need Java, PostgreSQL or Go.",
    "Install what the message names. If a download failed, check the network and run it again.",
)
STACK_FAILED = ErrorCode(
    109,
    "A part of the embedded stack does not run",
    "A server that Frazil starts itself did not start or has ended, another profile is running, or a state file is damaged.",
    "Another process may use the port, the stack may run in another profile, or the program failed. Its log shows why.",
    "Read the log that the message names. `frazil down`, then `frazil up`, restarts the stack; its data stays.",
)
BROKER_UNREACHABLE = ErrorCode(
    201,
    "No Kafka broker answers",
    "No broker of the cluster answered in time. Nothing was decided and nothing is lost.",
    "The brokers are down, the network is interrupted, or `bootstrap_servers` or `security.protocol` is wrong.",
    "Start the brokers, or correct the cluster's entry in the settings. The next try continues by itself.",
)
KAFKA_LOGIN_REFUSED = ErrorCode(
    202,
    "Kafka refuses the login or the connection's certificate",
    "The brokers rejected the client's credentials, token or certificate, or the client rejected the brokers' certificate.",
    "A password or certificate changed or expired, or the token endpoint or the token provider is not available.",
    "Correct the cluster's properties in the settings; docs/logins.md lists those that each login needs.",
)
KAFKA_DENIED = ErrorCode(
    203,
    "Kafka does not allow this",
    "The authorizer of the cluster denies an operation on a topic, consumer group or transactional id.",
    "The user lacks a permission.",
    "Grant the permission that the message names; docs/grants.md lists all that Frazil needs.",
)
TOPIC_MISSING = ErrorCode(
    204,
    "A topic or partition does not exist",
    "The cluster shows no topic or partition of this name to this user.",
    "The name is misspelled, the topic was deleted, or the user may not see it.",
    "Correct the name, create the topic, or grant Read on it.",
)
TOPIC_UNFIT = ErrorCode(
    205,
    "A topic is not set up as needed",
    "The topic exists, but its partitions, its configuration or its records don't suit this use.",
    "It was created for another purpose, or changed later.",
    "Change the topic as the message says, or name another one.",
)
RECORD_TOO_LARGE = ErrorCode(
    206,
    "A record or line is too large",
    "A record is larger than its topic accepts, or a captured line is longer than captures accept. It was not sent.",
    "`max.message.bytes` of the topic is lower than the record's size, or a captured file does not consist of lines.",
    "Raise `max.message.bytes` of the topic in the message. Nothing is dropped: the next run begins with the same record.",
)
RECORDS_UNREADABLE = ErrorCode(
    207,
    "Records of Kafka can't be unpacked",
    "The client can't unpack a batch of records, so the pipeline can't read past it.",
    "The batch is damaged, or larger unpacked than `receive.message.max.bytes` allows.",
    "Raise `receive.message.max.bytes` in the cluster's properties. Or set `source.on_unreadable: dead_letter`, which keeps only the"
    " coordinates of such records.",
)
KAFKA_NAME_IN_USE = ErrorCode(
    208,
    "Another client uses the same group or transaction",
    "Another client is a member of the consumer group, has an open transaction, or took over the transactional id.",
    "Two processes use one name at the same time, or a process ended without finishing its transaction.",
    "Stop the other client. Or wait: the broker aborts an open transaction when its timeout expires.",
)
KAFKA_FAILED = ErrorCode(
    209,
    "A request to Kafka failed",
    "A broker did not answer a request, answered with an error, or no longer has a planned offset.",
    "A partition changes its leader, a topic is changing, retention moved the log's start, or a setting is wrong.",
    "Try again; Airflow does so by itself. If it persists, check the log of the broker that leads the partition.",
)
CATALOG_UNREACHABLE = ErrorCode(
    301,
    "The catalog or the storage is not available now",
    "The catalog or the storage gave no usable answer. Nothing was decided and nothing is lost.",
    "A server is down or overloaded, or the network is interrupted.",
    "Wait for the next try. If it persists, check the catalog and the storage.",
)
CATALOG_REFUSED = ErrorCode(
    302,
    "The catalog or the storage refuses a request",
    "The catalog or the storage answered, and trying again won't change the answer.",
    "Credentials, permissions, address, bucket or region don't fit, or a driver is not installed.",
    "Check the catalog's entry in the settings, and what its user may do. `frazil doctor` tries each of them.",
)
TABLE_MISSING = ErrorCode(
    303,
    "A table, or a file of the catalog, is missing",
    "The catalog has no such table, or a file that the catalog or a snapshot refers to no longer exists.",
    "The table was dropped, files were deleted by hand or by an orphan removal, or a backup is incomplete.",
    "Correct the name, or restore what is missing from a backup.",
)
TABLE_UNFIT = ErrorCode(
    304,
    "A table does not fit its pipeline",
    "The columns, partitions, sort order or format of a table contradict the pipeline file or the records, and Frazil may not or"
    " can't change the table to fit.",
    "The table was altered, the pipeline file was edited, or records need a change of type that Iceberg does not allow.",
    "Alter the table or the pipeline file as the message says. `frazil validate --diff` shows the differences. `frazil apply` makes"
    " the changes that need no rewritten rows. docs/tables-as-code.md has the steps for another type or name of a column.",
)
BAD_TABLE_PROPERTY = ErrorCode(
    305,
    "A table property is invalid or not allowed",
    "A property of a table has an invalid value, or it may run code in every program that opens the table.",
    "Somebody edited it by hand, or the pipeline file sets a property that the settings don't allow.",
    "Correct or remove the property. To allow it, list it under `table_properties` of the catalog in the settings.",
)
ROW_KEY_UNKNOWN = ErrorCode(
    306,
    "The key of a table's rows is missing or unclear",
    "Frazil must merge changes into a table, but the table has no key, or another one than the pipeline file.",
    "The pipeline file has no `identifier`, and the table has no identifier fields. Or both name different columns.",
    "Name the columns under `identifier`, or set the identifier fields of the table.",
)
CLOCK_WRONG = ErrorCode(
    307,
    "A clock is wrong",
    "The table's last change is in the future of this host's clock, or this commit is in the future of the server's clock.",
    "The clock of this host, of the server, or of the host that last changed the table is wrong.",
    "Set the clocks, and keep them synchronised with NTP. Runs continue by themselves once the clocks agree.",
)
RUN_OVERTAKEN = ErrorCode(
    401,
    "Another run was faster",
    "The table or the pipeline's state changed after this run had planned, so the run published nothing. Nothing is lost or doubled.",
    "Another run, command or engine worked on the same table at the same time.",
    "Run it again: it plans from the present position. During a long replay, pause the ingest DAG.",
)
COMMIT_UNKNOWN = ErrorCode(
    402,
    "It is unknown whether a commit or records arrived",
    "A commit or records were sent, and no answer came back.",
    "The connection broke between the request and its answer.",
    "Run it again: the next run reads the table and finds out. After `frazil produce`, compare the topic's end offsets first.",
)
CLUSTER_CHANGED = ErrorCode(
    403,
    "The pipeline's position belongs to another Kafka cluster",
    "The settings name another cluster than the one that the pipeline has read. Offsets mean other records there, so nothing was read.",
    "The address changed, or the topics moved to a new cluster.",
    "Correct the settings, or continue on the new cluster with the `frazil reset` in the message.",
)
TOPIC_RECREATED = ErrorCode(
    404,
    "A topic was recreated or deleted",
    "The topic has another id than in the pipeline's position, or it no longer exists.",
    "It was deleted, and perhaps created again under the same name. The offsets of a new topic start at 0.",
    "Read the new topic from its beginning with the `frazil reset` in the message. If it was deleted for good, set"
    " `source.on_data_loss: skip_recorded`: the next run continues without it and records the loss. Then remove the line, so that later losses are refused again.",
)
RECORDS_EXPIRED = ErrorCode(
    405,
    "Records were deleted before they were read",
    "Kafka's retention deleted records that the pipeline had not read yet, so the run was refused.",
    "The pipeline ran too rarely or not at all, or the topic's retention is too short.",
    "Lengthen the topic's retention. To continue without the records, use `source.on_data_loss: skip_recorded` or `frazil reset`;"
    " both record the loss in the ledger.",
)
LOG_TRUNCATED = ErrorCode(
    406,
    "A topic lost records that were already read",
    "The log ends before the position, or holds other records at offsets that were already read.",
    "An unclean leader election, a disk restored from an old copy, or a recreated topic.",
    "Find out what happened to the brokers, then run the `frazil reset` in the message.",
)
BAD_STATE = ErrorCode(
    407,
    "Stored state of a pipeline can't be read",
    "A position, a manifest or an entry of the ledger is damaged, so Frazil can't tell where to continue.",
    "A file was deleted, or a property or a row was edited by hand.",
    "Restore it as the message says; `frazil history PIPELINE` shows the last positions.",
)
POSITION_LOST = ErrorCode(
    408,
    "The position of a pipeline is gone",
    "The table that held the position no longer has it, although the pipeline has landed rows.",
    "The table was dropped and created again, or its properties were removed and its snapshots expired.",
    "Restore the table, or land everything again with the `frazil reset` in the message.",
)
TABLE_ROLLED_BACK = ErrorCode(
    409,
    "A table was rolled back or replaced",
    "A table holds less than the pipeline landed in it. To continue would leave a gap, so the run was refused.",
    "Somebody rolled it back, replaced it, or restored an older metadata file.",
    "Restore the table, or continue from its present content with the `frazil reset` in the message.",
)
TABLE_LOST = ErrorCode(
    410,
    "A table or branch of a pipeline is gone",
    "A table or branch that this pipeline wrote no longer exists, has lost rows, or can't take its part of a batch.",
    "Somebody dropped, renamed or changed it.",
    "Restore it. Or recreate and fill it with the `frazil repair` or `frazil reset` in the message.",
)
MANIFEST_FOREIGN = ErrorCode(
    411,
    "A manifest does not belong to this pipeline",
    "The manifest of a batch names tables, or another batch, that this pipeline does not have. Nothing was written.",
    "A destination was removed from the pipeline file, or somebody else committed to the table.",
    "If a destination was removed, add it again. Otherwise roll back the foreign commit, and check who may write to the table.",
)
TABLE_SHARED = ErrorCode(
    412,
    "Two pipelines would share one table",
    "Another pipeline lands the same records in this table, or keeps its dead letters or its position in it.",
    "A pipeline was renamed or copied, or two pipeline files began at the same moment.",
    "Give the pipeline its former name back, or tables of its own.",
)
FILE_CONTRADICTS = ErrorCode(
    413,
    "The pipeline file contradicts what was landed",
    "The file names another table, branch, ledger or `write` than the one that the pipeline has used so far.",
    "The pipeline file was edited in a way that would leave rows behind or double them.",
    "Undo the edit, or give the pipeline a new name and new tables.",
)
FILES_OUTDATED = ErrorCode(
    414,
    "This run read an outdated pipeline or settings file",
    "A pipeline file or the settings changed during the run, or a newer edit has not arrived on this host.",
    "Files were edited, or are still being copied to this host.",
    "Nothing was published. Airflow tries again by itself; a command you run again when all hosts have the newest files. With exit"
    " code 78, start the DAG of the capture again in a minute.",
)
AUDIT_FAILED = ErrorCode(
    415,
    "The audit of a batch failed",
    "The staged rows don't match the records that were read. Nothing was published.",
    "This is a bug in Frazil, in a reader or in an engine, or somebody changed staged files.",
    "Report the numbers in the message. The records are still in Kafka, and the next run reads them again.",
)
TOO_MANY_DEAD_LETTERS = ErrorCode(
    416,
    "Too many records became dead letters",
    "A batch has more dead letters than `dead_letters.tolerance` allows. Nothing was published.",
    "The producer changed, or the pipeline file does not describe the records.",
    "Correct the producer or the columns, or raise the tolerance. `frazil run --dry-run` shows samples."
    " docs/runbooks/tolerance.md has the steps.",
)
REPLAY_REFUSED = ErrorCode(
    417,
    "Rows can't be replaced or verified",
    "A replay, reset, repair or verification needs something that this table or topic does not have. Nothing was changed.",
    "The table has no Kafka columns or keeps no trace of deleted rows, or Kafka's compaction or retention removed records.",
    "Follow the next step of the message. It names another range, a reset, or a new table with a pipeline of its own.",
)
NEVER_RAN = ErrorCode(
    418,
    "The pipeline never ran",
    "The command needs a position or tables, and the pipeline has none yet.",
    "No run has landed anything so far.",
    "Run it first: `frazil run PIPELINE`.",
)
BAD_HANDOVER = ErrorCode(
    419,
    "A plan or stored document does not fit this release of Frazil",
    "A plan, manifest or position has another version, or belongs to another pipeline or kind of run.",
    "Two releases of Frazil work on one pipeline, or a plan was handed to the wrong task.",
    "Install the newer release everywhere; docs/upgrading.md says in which order. Then run again.",
)
STOP_REQUESTED = ErrorCode(
    501,
    "The run was stopped",
    "The run finished the batch that was decided, and published nothing else.",
    "A person, Airflow or the machine stopped it.",
    "Nothing: the next run continues where this one stopped.",
)
SPARK_UNAVAILABLE = ErrorCode(
    502,
    "Spark is not available",
    "Spark did not start, or the Spark server opened no session. Batches that need Spark wait.",
    "The master or the server is down, busy or unreachable from here, or this step runs without Spark.",
    "Start it, or correct the engine's entry in the settings. `frazil doctor --spark` tests it.",
)
BAD_SPARK_SERVER = ErrorCode(
    503,
    "The Spark server does not fit",
    "The server's release, configuration or token, or Frazil on its workers, differs from what the pipeline needs.",
    "Server and pipelines were upgraded separately, or the server was started without what Frazil needs.",
    "Start the server as the message and docs/engines.md say.",
)
RUN_FAILED = ErrorCode(
    504,
    "A run or a job failed, or did not end in time",
    "A job ended without a result or could not write its part, or a run took longer than a command waits. Nothing is lost.",
    "A table, the storage or a worker failed, memory ran short, or there was more to do than expected. The log shows which.",
    "Read the log that the message names, or look at the run in Airflow. The next run finishes a batch that was decided.",
)
BAD_SCHEMA = ErrorCode(
    601,
    "The schema of the records is missing or invalid",
    "The schema of values or keys is missing or invalid, or their fields must be declared.",
    "A schema file is wrong, or transforms, changes or several destinations need declared fields.",
    "Correct the schema file, name a registry, or declare the fields under `value.fields`.",
)
FIELDS_UNFIT = ErrorCode(
    602,
    "Fields or columns don't fit each other",
    "A column, a transform or `changes` expects a field of another type or name than the values have.",
    "The pipeline file declares something else, or the records have another structure than it assumes.",
    "Declare the field or column as the message says.",
)
BAD_TRANSFORM = ErrorCode(
    603,
    "A format or transform can't be used",
    "A format, transform or pattern is not known, can't be loaded, or its options or SQL are wrong.",
    "A name is misspelled, a package is missing, or an expression has a mistake.",
    "Correct it in the pipeline file, or install what it needs; docs/transforms.md lists all options.",
)
RECORD_REFUSED = ErrorCode(
    604,
    "A record stops the batch, as the pipeline file says",
    "A record does not fit its column or names no destination, and the pipeline file says to stop in that case. Nothing was published.",
    "`on_incompatible` or `route.otherwise` is set to `fail`.",
    "Correct the producer, or choose another outcome, such as `dead_letter`.",
)
REGISTRY_FAILED = ErrorCode(
    605,
    "The schema registry does not answer, or refuses",
    "No schema can be read. Nothing was decided and nothing is lost.",
    "The registry is down or overloaded, or its entry in the settings has a wrong address, credential or certificate.",
    "Wait for the next try, or correct the entry under `registries`; `url` is the root of the API.",
)
AIRFLOW_FAILED = ErrorCode(
    701,
    "Airflow does not answer, or refuses",
    "A request to Airflow failed, the login is missing, or Airflow does not know a DAG.",
    "Airflow is down or busy, or its address or password is not set.",
    "`frazil status` shows whether it runs, `frazil up` starts it.",
)
NOTICE_UNDELIVERED = ErrorCode(
    702,
    "A notice could not be delivered",
    "A report did not reach all channels. Frazil keeps the report.",
    "A channel is not available, or its connection is wrong.",
    "Correct the channel. The next try sends the report to the channels that did not get it.",
)
MAINTENANCE_FAILED = ErrorCode(
    801,
    "A step of maintenance was not done",
    "A step of maintenance failed or was postponed. Nothing was removed that may be needed.",
    "A batch is not finished, a table was rolled back, or another program changed the same files.",
    "The next maintenance tries again. If it persists, check the state of the pipeline: `frazil status`.",
)
CAPTURE_UNREADABLE = ErrorCode(
    802,
    "Captured files can't be read",
    "A file or its folder can't be read, is not in an allowed folder, or changed while it was read.",
    "A volume is not mounted, a permission is missing, or the file was rotated at this moment.",
    "Mount it, let the user read it, or list the folder under `captures.folders`. The next run reads a changed file again.",
)
BAD_CAPTURE_POSITION = ErrorCode(
    803,
    "A capture can't continue at its position",
    "The position is missing, or belongs to another kind, topic or order; or files were removed before they were read. Nothing was"
    " captured.",
    "The capture file was changed, the topic was recreated, or files were rotated to names that `paths` does not cover.",
    "Undo the change, or choose where to continue: `frazil capture NAME --from … --reason …`.",
)
DATABASE_REFUSED = ErrorCode(
    804,
    "A captured database refuses the query",
    "The database rejected the user, the query or a column, or its JDBC driver is missing.",
    "The capture file or the entry under `databases` is wrong, or the user may not read.",
    "Correct what the message names. The log of the job has the database's own message.",
)
INTERNAL = ErrorCode(
    901,
    "An internal error",
    "Frazil, or a library that it uses, broke one of Frazil's own rules.",
    "This is a bug in the program, not in the data.",
    "Run the command again with `--debug` and report what it shows.",
)
