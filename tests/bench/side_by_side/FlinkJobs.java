import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;

import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;
import org.apache.flink.table.api.TableResult;

/** Runs files of SQL, one for each line of standard input, on Flink's local cluster, and says when each has ended. */
public class FlinkJobs {
    public static void main(String[] arguments) throws Exception {
        System.out.println("ready");
        BufferedReader files = new BufferedReader(new InputStreamReader(System.in));
        for (String file = files.readLine(); file != null; file = files.readLine()) {
            TableEnvironment environment = TableEnvironment.create(EnvironmentSettings.inStreamingMode());
            for (String statement : Files.readString(Path.of(file)).split(";\n")) {
                if (statement.startsWith("SET ")) {
                    String[] option = statement.substring(4).split(" = ", 2);
                    environment.getConfig().set(option[0], option[1]);
                } else {
                    TableResult result = environment.executeSql(statement);
                    if (statement.startsWith("INSERT ")) {
                        result.await();
                    }
                }
            }
            System.out.println("landed");
        }
    }
}
