import java.io.File;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.hdfs.server.namenode.NameNode;
import org.apache.hadoop.metrics2.lib.DefaultMetricsSystem;

/**
 * An empty HDFS on loopback: a NameNode and a DataNode in one process.
 *
 * <p>The argument is the folder where they keep their files. When they are ready, a line with the
 * NameNode's ports of HTTP and RPC is printed. The end of standard input ends the process.
 */
public final class HdfsUnderTest {
    private static final String ANY_PORT = "127.0.0.1:0";

    private HdfsUnderTest() {}

    public static void main(String[] arguments) throws Exception {
        File folder = new File(arguments[0]);
        Configuration settings = new HdfsConfiguration();
        settings.set("fs.defaultFS", "hdfs://" + ANY_PORT);
        settings.set("dfs.namenode.name.dir", new File(folder, "name").toURI().toString());
        settings.set("dfs.datanode.data.dir", new File(folder, "data").toURI().toString());
        for (String name :
                new String[] {
                    "dfs.namenode.http-address",
                    "dfs.datanode.address",
                    "dfs.datanode.http.address",
                    "dfs.datanode.ipc.address",
                }) {
            settings.set(name, ANY_PORT);
        }
        settings.set("dfs.datanode.hostname", "127.0.0.1");
        settings.set("dfs.replication", "1");
        // So that a listing of few names has pages.
        settings.set("dfs.ls.limit", "3");
        settings.set("dfs.namenode.safemode.extension", "0");
        settings.set("hadoop.security.group.mapping", "org.apache.hadoop.security.NullGroupsMapping");
        // Else the second name system of the process, after that which formats, fails.
        DefaultMetricsSystem.setMiniClusterMode(true);
        NameNode.format(settings);
        NameNode nameNode = NameNode.createNameNode(new String[0], settings);
        int port = nameNode.getNameNodeAddress().getPort();
        settings.set("fs.defaultFS", "hdfs://127.0.0.1:" + port);
        DataNode dataNode = DataNode.instantiateDataNode(new String[0], settings);
        dataNode.runDatanodeDaemon();
        while (!dataNode.isDatanodeFullyStarted()) {
            Thread.sleep(20);
        }
        System.out.println(nameNode.getHttpAddress().getPort() + " " + port);
        while (System.in.read() >= 0) {
            // Wait for the end.
        }
        Runtime.getRuntime().halt(0);
    }
}
