import java.net.InetSocketAddress;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hive.metastore.HiveMetaStore;
import org.apache.hadoop.hive.metastore.IHMSHandler;
import org.apache.hadoop.hive.metastore.RetryingHMSHandler;
import org.apache.hadoop.hive.metastore.TUGIBasedProcessor;
import org.apache.hadoop.hive.metastore.conf.MetastoreConf;
import org.apache.hadoop.hive.metastore.conf.MetastoreConf.ConfVars;
import org.apache.hadoop.hive.metastore.security.TUGIContainingTransport;
import org.apache.thrift.protocol.TBinaryProtocol;
import org.apache.thrift.server.TThreadPoolServer;
import org.apache.thrift.transport.TServerSocket;

/**
 * Hive's own metastore behind a socket that only this machine can reach.
 *
 * <p>The main class of Hive 3 binds to all addresses, and no setting keeps it from that. The handler, the processor and the
 * transport are those that it would use; everything else is set in metastore-site.xml on the class path.
 */
public final class LocalMetastore {
  private LocalMetastore() {}

  public static void main(String[] args) throws Exception {
    Configuration conf = MetastoreConf.newMetastoreConf();
    InetSocketAddress here = new InetSocketAddress("127.0.0.1", MetastoreConf.getIntVar(conf, ConfVars.SERVER_PORT));
    IHMSHandler handler = RetryingHMSHandler.getProxy(conf, new HiveMetaStore.HMSHandler("metastore", conf, false), false);
    new TThreadPoolServer(
            new TThreadPoolServer.Args(new TServerSocket(here))
                .processor(new TUGIBasedProcessor<>(handler))
                .transportFactory(new TUGIContainingTransport.Factory())
                .protocolFactory(new TBinaryProtocol.Factory()))
        .serve();
  }
}
