import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.replica.ClientMetadata;
import org.apache.kafka.common.replica.PartitionView;
import org.apache.kafka.common.replica.ReplicaSelector;
import org.apache.kafka.common.replica.ReplicaView;

/** Prints the rack that consumers name when they fetch; they read from the leader all the same. */
public class RackLog implements ReplicaSelector {
    @Override
    public void configure(Map<String, ?> configs) {}

    @Override
    public Optional<ReplicaView> select(TopicPartition partition, ClientMetadata client, PartitionView replicas) {
        System.out.println("RackLog: " + partition.topic() + " rack '" + client.rackId() + "'");
        return Optional.of(replicas.leader());
    }
}
