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
import org.apache.thrift.protocol.TProtocol;
import org.apache.thrift.server.ServerContext;
import org.apache.thrift.server.TServer;
import org.apache.thrift.server.TServerEventHandler;
import org.apache.thrift.server.TThreadPoolServer;
import org.apache.thrift.transport.TServerSocket;
import org.apache.thrift.transport.TTransport;

/**
 * Hive's own metastore behind a socket that only this machine can reach.
 *
 * <p>The main class of Hive 3 binds to all addresses, and no setting keeps it from that. The handler, the processor, the
 * transport and what is done when a client goes are those that it would use, without security, limits and housekeeping; its
 * settings are those of metastore-site.xml on the class path.
 */
public final class LocalMetastore {
  private LocalMetastore() {}

  public static void main(String[] args) throws Exception {
    Configuration conf = MetastoreConf.newMetastoreConf();
    InetSocketAddress here = new InetSocketAddress("127.0.0.1", MetastoreConf.getIntVar(conf, ConfVars.SERVER_PORT));
    HiveMetaStore.HMSHandler base = new HiveMetaStore.HMSHandler("metastore", conf, false);
    IHMSHandler handler = RetryingHMSHandler.getProxy(conf, base, false);
    TServer server =
        new TThreadPoolServer(
            new TThreadPoolServer.Args(new TServerSocket(here))
                .processor(new TUGIBasedProcessor<>(handler))
                .transportFactory(new TUGIContainingTransport.Factory())
                .protocolFactory(new TBinaryProtocol.Factory()));
    server.setServerEventHandler(new Tidy(base));
    server.serve();
  }

  /** Whoever is served next by a thread finds nothing there of whom it served before: no transaction and no settings. */
  private record Tidy(HiveMetaStore.HMSHandler handler) implements TServerEventHandler {
    @Override
    public void preServe() {}

    @Override
    public ServerContext createContext(TProtocol input, TProtocol output) {
      return null;
    }

    @Override
    public void deleteContext(ServerContext context, TProtocol input, TProtocol output) {
      handler.shutdown();
    }

    @Override
    public void processContext(ServerContext context, TTransport input, TTransport output) {}
  }
}
