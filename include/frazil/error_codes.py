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
    "Nothing has this name",
    "The command names a pipeline, capture, table, topic, report, dead letter or part that does not exist.",
    "It is misspelled, was removed, or belongs to another project or settings file.",
    "Choose one of the names in the message, or look them up with `frazil status`.",
)
BAD_SETTING = ErrorCode(
    105,
    "A setting is missing or can't be used",
    "An entry of the settings, a property or an environment variable is needed and missing, or has a value that can't be used.",
    "The pipeline file names an entry that the settings lack, or a value has another form than expected.",
    "Add or correct the entry that the message names.",
)
BAD_ARGUMENT = ErrorCode(
    106,
    "The command can't do what its arguments say",
    "An argument, a field of a form, a query or a list of offsets has a wrong form, or does not go with the others.",
    "An offset may be missing for a partition, an instant may have no time zone, or two options exclude each other.",
    "Give the argument as the message shows it. Nothing was changed.",
)
BAD_FILE = ErrorCode(
    107,
    "A file can't be read, written or used",
    "A file that was given to a command, or that it writes, can't be opened, or does not hold what is expected.",
    "Its name, its permissions or its contents are wrong.",
    "Correct what the message names, and run the command again.",
)
PROGRAM_MISSING = ErrorCode(
    108,
    "A program, package or jar is missing",
    "Something that this command needs is not installed on this machine, or could not be fetched or built.",
    "Parts of Frazil are optional: libraries of formats, catalogs and engines come with extras of the package (docs/install.md); Java,"
    " PostgreSQL and Go are installed for the commands that use them.",
    "Install what the message names. If a download failed, check the network and run it again.",
)
STACK_FAILED = ErrorCode(
    109,
    "A part of the embedded stack does not run",
    "A server that Frazil starts itself did not start, ended, is in the way of another one, or its state file is damaged.",
    "A port may be taken, the stack may run in another profile, or the program failed; its log says why.",
    "Read the log that the message names. `frazil down` and `frazil up` start the stack anew; its data stays.",
)
BROKER_UNREACHABLE = ErrorCode(
    201,
    "No Kafka broker answers",
    "No broker of the cluster answered in time. Nothing was decided and nothing is lost.",
    "The brokers are down, the network is interrupted, or `bootstrap_servers` or `security.protocol` is wrong.",
    "Start the brokers or correct the cluster's entry in the settings. The next try goes on by itself.",
)
KAFKA_LOGIN_REFUSED = ErrorCode(
    202,
    "Kafka refuses the login or the connection's certificate",
    "Credentials, a token or a certificate were not accepted, by the brokers or by this client.",
    "A password or certificate changed or expired, or the token endpoint or the token provider is not available.",
    "Correct the cluster's properties in the settings; docs/logins.md says which are needed.",
)
KAFKA_DENIED = ErrorCode(
    203,
    "Kafka does not allow this",
    "The authorizer of the cluster denies an operation on a topic, consumer group or transactional id.",
    "The user lacks a permission.",
    "Have the permission granted that the message names. docs/grants.md lists them all.",
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
    "The topic exists, but its partitions, its configuration or its records are not what this use of it needs.",
    "It was created for another purpose, or changed later.",
    "Change the topic as the message says, or name another one.",
)
RECORD_TOO_LARGE = ErrorCode(
    206,
    "A record or line is too large",
    "Something to be sent is larger than the topic, or a limit of the capture, takes. It was not sent.",
    "`max.message.bytes` of the topic is lower than the record's size, or a captured file does not consist of lines.",
    "Raise `max.message.bytes` of the topic that is named. Nothing is dropped: the next run goes on with the same record.",
)
RECORDS_UNREADABLE = ErrorCode(
    207,
    "Records of Kafka can't be unpacked",
    "The client can't unpack a batch of records, so the pipeline can't read past it.",
    "The batch is damaged, or larger unpacked than `receive.message.max.bytes` allows.",
    "Raise that property of the cluster, or set `source.on_unreadable: dead_letter` to keep only the coordinates.",
)
KAFKA_NAME_IN_USE = ErrorCode(
    208,
    "Another client uses the same group or transaction",
    "A consumer group has members, or a transaction of another producer is open or took over.",
    "Two processes use one name at the same time, or one ended without finishing its transaction.",
    "Stop the other client, or wait: an open transaction ends by its time-out.",
)
KAFKA_FAILED = ErrorCode(
    209,
    "A request to Kafka failed",
    "A broker did not answer a request, answered with an error, or no longer has an offset that was planned.",
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
    "The catalog has no such table, or a file that it or a snapshot names no longer exists.",
    "The table was dropped, files were deleted by hand or by an orphan removal, or a backup is incomplete.",
    "Correct the name, or restore what is missing from a backup.",
)
TABLE_UNFIT = ErrorCode(
    304,
    "A table does not fit its pipeline",
    "Columns, partitions, sort order or format of a table don't go with the pipeline file or the records, and can't be changed to.",
    "The table was altered, the pipeline file was edited, or records need a change of type that Iceberg does not allow.",
    "Alter the table or the pipeline file as the message says. `frazil validate --diff` shows the differences, `frazil apply` makes"
    " what Iceberg can change without writing rows anew.",
)
BAD_TABLE_PROPERTY = ErrorCode(
    305,
    "A table property can't be read or is not allowed",
    "A property of a table has a value that can't be read, or one that may run code for everybody who opens the table.",
    "Somebody edited it by hand, or the pipeline file sets it without the permission of the settings.",
    "Remove or correct the property, or list it under `table_properties` of the catalog in the settings.",
)
ROW_KEY_UNKNOWN = ErrorCode(
    306,
    "Nothing says which columns identify a row",
    "Changes are to be merged into a table, and the key of its rows is missing or differs from the pipeline file.",
    "The pipeline file has no `identifier`, and the table has no or other identifier fields.",
    "Name the columns under `identifier`, or set the identifier fields of the table.",
)
CLOCK_WRONG = ErrorCode(
    307,
    "A clock is wrong",
    "The table was changed at a time that lies in the future for this host, or the server sees this commit in its future.",
    "A clock of this host, of the server, or of the host that changed the table is not set.",
    "Set the clocks and keep them in time (NTP). Runs go on by themselves once they agree.",
)
RUN_OVERTAKEN = ErrorCode(
    401,
    "Another run was faster",
    "The table no longer holds what this work was planned on, so it was not published. Nothing is lost or doubled.",
    "Another run, command or engine changed the table or its state meanwhile.",
    "Run it again: it plans from where the pipeline is now. For a long replay, pause the ingest DAG meanwhile.",
)
COMMIT_UNKNOWN = ErrorCode(
    402,
    "It is not known whether something arrived",
    "A commit or records were sent, and no answer says whether they arrived.",
    "The connection broke between the request and its answer.",
    "Run it again: the next run reads the table and knows. After `frazil produce`, compare the end offsets first.",
)
CLUSTER_CHANGED = ErrorCode(
    403,
    "The pipeline's position belongs to another Kafka cluster",
    "The settings lead to another cluster than the one that was read. Its offsets mean other records, so nothing is read.",
    "The address changed, or the topics moved to a new cluster.",
    "Point the settings back, or take up the new cluster with the `frazil reset` of the message.",
)
TOPIC_RECREATED = ErrorCode(
    404,
    "A topic was recreated or has vanished",
    "The topic is another one than the position knows, or no longer exists.",
    "It was deleted, and perhaps created again under the same name. Its offsets start again at 0.",
    "Read it from its beginning with the `frazil reset` of the message, or let a run go on without it.",
)
RECORDS_EXPIRED = ErrorCode(
    405,
    "Records were deleted before they were read",
    "Kafka's retention deleted records that the pipeline had not read yet, so the run was refused.",
    "The pipeline ran too rarely or stood still, or the topic's retention is too short.",
    "Lengthen the retention. To go on without the records, on record, use `source.on_data_loss: skip_recorded` or `frazil reset`.",
)
LOG_TRUNCATED = ErrorCode(
    406,
    "A topic lost records that were already read",
    "The log ends before the position, or holds other records where some were read.",
    "An unclean leader election, a disk restored from an old copy, or a recreated topic.",
    "Find out what happened to the brokers, then run the `frazil reset` of the message.",
)
BAD_STATE = ErrorCode(
    407,
    "Stored state of a pipeline can't be read",
    "A position, a manifest or an entry of the ledger is damaged, so nobody knows where to go on.",
    "A file was deleted, or a property or a row was edited by hand.",
    "Restore it as the message says; `frazil history PIPELINE` shows the last positions.",
)
POSITION_LOST = ErrorCode(
    408,
    "The position of a pipeline is gone",
    "The table that kept the position no longer has it, while the pipeline did land rows.",
    "The table was dropped and created again, or its properties were removed and its snapshots expired.",
    "Restore the table, or land everything anew with the `frazil reset` of the message.",
)
TABLE_ROLLED_BACK = ErrorCode(
    409,
    "A table was rolled back or replaced",
    "A table holds less than the pipeline landed in it. To go on would leave a gap, so the run was refused.",
    "Somebody rolled it back, replaced it, or restored an older metadata file.",
    "Restore the table, or go on from what it holds with the `frazil reset` of the message.",
)
TABLE_LOST = ErrorCode(
    410,
    "A table or branch of a pipeline is gone",
    "A table or branch that this pipeline wrote no longer exists, or lacks rows that were decided for it.",
    "It was dropped, renamed or changed by somebody else.",
    "Restore it, or have it made and filled again with the `frazil repair` or `frazil reset` of the message.",
)
MANIFEST_FOREIGN = ErrorCode(
    411,
    "A manifest does not belong to this pipeline",
    "The manifest of a decided batch names tables, or a batch, that are not of this pipeline. Nothing was written.",
    "A destination was taken out of the pipeline file, or somebody else committed to the table.",
    "Name the destination again. If there was none, roll the foreign commit back and check who may write.",
)
TABLE_SHARED = ErrorCode(
    412,
    "Two pipelines would share one table",
    "Another pipeline lands the same records in this table, or keeps its letters or its position in it.",
    "A pipeline was renamed or copied, or two pipeline files began at the same moment.",
    "Give the pipeline its former name back, or tables of its own.",
)
FILE_CONTRADICTS = ErrorCode(
    413,
    "The pipeline file contradicts what was landed",
    "The file now names another table, branch, ledger or way to write than the one that holds the pipeline's rows.",
    "The pipeline file was edited in a way that would leave rows behind or double them.",
    "Declare it as it was, or give the pipeline a new name and new tables.",
)
FILES_OUTDATED = ErrorCode(
    414,
    "This run read other files than those in force",
    "A pipeline file or the settings changed while the run was at work, or a newer edit has not arrived on this host.",
    "Files were edited or are being distributed.",
    "Run it again when all hosts have the newest files. Nothing was published.",
)
AUDIT_FAILED = ErrorCode(
    415,
    "The audit of a batch failed",
    "The rows that were staged don't match the records that were read. Nothing was published.",
    "This is a fault of Frazil, of a reader or of an engine, or staged files were changed.",
    "Report the numbers of the message. The records are still in Kafka, and the next run reads them again.",
)
TOO_MANY_DEAD_LETTERS = ErrorCode(
    416,
    "Too many records became dead letters",
    "More records of a batch can't be landed than `dead_letters.tolerance` allows. Nothing was published.",
    "The producer changed, or the pipeline file does not describe the records.",
    "Correct the producer or the columns, or raise the tolerance. `frazil run --dry-run` shows samples.",
)
REPLAY_REFUSED = ErrorCode(
    417,
    "Rows can't be taken out and landed again",
    "A replay, reset, repair or check of rows needs what this table or topic does not have. Nothing was changed.",
    "There are no Kafka columns, compaction or retention removed records, or deleted rows are not remembered.",
    "Choose another range, or land the topic into a new table with a pipeline of its own.",
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
    "A plan or stored document does not fit this Frazil",
    "A plan, manifest or position has another version, or belongs to another pipeline or kind of run.",
    "Two releases of Frazil work on one pipeline, or a plan was handed to the wrong task.",
    "Install the newer release everywhere; docs/upgrading.md says in which order. Then run again.",
)
STOP_REQUESTED = ErrorCode(
    501,
    "The run was asked to stop",
    "The run finished what it had decided and published nothing else.",
    "Somebody stopped it, or Airflow or the machine did.",
    "Nothing: the next run goes on where this one stopped.",
)
SPARK_UNAVAILABLE = ErrorCode(
    502,
    "Spark is not available",
    "No Spark could be started, or the server gave no session. A batch that needs Spark waits.",
    "The master or the server is down, busy or can't be reached from here, or this step has no Spark.",
    "Start it or correct the engine's entry in the settings. `frazil doctor --spark` tries it.",
)
BAD_SPARK_SERVER = ErrorCode(
    503,
    "The Spark server does not fit",
    "The server has another release, another Frazil on its workers, other configuration or another token.",
    "Server and pipelines were upgraded separately, or the server was started without what Frazil needs.",
    "Start the server as the message and docs/engines.md say.",
)
RUN_FAILED = ErrorCode(
    504,
    "A run or a job failed, or did not end in time",
    "A job ended without a result, could not write its part, or a command waited for a run in vain. Nothing is lost.",
    "A table, the storage or a worker failed, memory was short, or there is more to do than expected; the log says what.",
    "Read the log that the message names, or look at the run in Airflow. The next run finishes what was decided.",
)
BAD_SCHEMA = ErrorCode(
    601,
    "Nothing usable says what records hold",
    "The schema of values or keys is missing, invalid, or needs fields to be declared.",
    "A schema file is wrong, or transforms, changes or several destinations need to know the fields before.",
    "Correct the schema file, name a registry, or declare the fields under `value.fields`.",
)
FIELDS_UNFIT = ErrorCode(
    602,
    "Fields or columns don't fit each other",
    "A column, a transform or `changes` expects a field of another type or name than the values have.",
    "The pipeline file declares it otherwise, or the records have another shape than assumed.",
    "Declare the field or column as the message says.",
)
BAD_TRANSFORM = ErrorCode(
    603,
    "A format or transform can't be used",
    "A format, transform or pattern is not known, can't be loaded, or its options or SQL are wrong.",
    "A name is misspelled, a package is missing, or an expression has a fault.",
    "Correct it in the pipeline file, or install what it needs; docs/transforms.md lists all options.",
)
RECORD_REFUSED = ErrorCode(
    604,
    "A record stops the batch, as the pipeline file says",
    "A record does not fit its column or names no destination, and the pipeline file asks to stop then. Nothing was published.",
    "`on_incompatible` or `route.otherwise` is set to fail.",
    "Correct the producer, or choose another outcome, such as `dead_letter`.",
)
REGISTRY_FAILED = ErrorCode(
    605,
    "The schema registry does not answer, or refuses",
    "No schema can be read. Nothing was decided and nothing is lost.",
    "It is down or overloaded, or credentials, certificate or address of its entry in the settings are wrong.",
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
    "Something is to be reported, and not all channels took it. The report is kept.",
    "A channel is not available, or its connection is wrong.",
    "Correct the channel; the next try delivers it to those that lack it.",
)
MAINTENANCE_FAILED = ErrorCode(
    801,
    "A step of maintenance was not done",
    "Compaction, expiry or removal of a table failed or was put off. Nothing was removed that may be needed.",
    "A batch is not finished, a table was rolled back, or others changed the same files.",
    "The next maintenance tries again. If it persists, check the state of the pipeline: `frazil status`.",
)
CAPTURE_UNREADABLE = ErrorCode(
    802,
    "Captured files can't be read",
    "A file or its folder can't be read, is not allowed, or changed while it was read.",
    "A volume is not mounted, a permission is missing, or the file was rotated at this moment.",
    "Mount it, let the user read it, or list the folder under `captures.folders`. A changed file is found again by the next run.",
)
BAD_CAPTURE_POSITION = ErrorCode(
    803,
    "A capture can't go on at its position",
    "The position is missing or of another kind, topic or order, or files were removed before they were read. Nothing is captured.",
    "The capture file was changed, the topic was recreated, or files were rotated to names that `paths` does not cover.",
    "Take the change back, or say where to go on: `frazil capture NAME --from … --reason …`.",
)
DATABASE_REFUSED = ErrorCode(
    804,
    "A captured database refuses the query",
    "The database did not accept user, query or columns, or its JDBC driver is missing.",
    "The capture file or the entry under `databases` is wrong, or the user may not read.",
    "Correct what the message names; the log of the job has the database's own words.",
)
INTERNAL = ErrorCode(
    901,
    "Something happened that should not",
    "Frazil, or a part that it uses, did what it must not do.",
    "This is a fault of the program, not of the data.",
    "Run the command again with `--debug` and report what it shows.",
)
